//! The machine that was measured on.

/// Processors, kernel and load, from /proc.
pub(super) fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("?").to_string();
    format!(
        "{processors} processors, Linux {}, load {load}",
        kernel.trim()
    )
}
