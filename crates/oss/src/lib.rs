//! oss
