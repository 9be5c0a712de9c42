//! A Rust file, as far as the rules look into it: lines of code, functions, tests, paths used.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::str::FromStr;

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A function of the product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its bare name.
    pub name: String,
    /// Where it starts.
    pub line: usize,
    /// Its lines of code, signature to closing brace.
    pub lines: usize,
}

/// A path that code outside tests mentions: `std::fs::read`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// As written, groups of a `use` taken apart.
    pub path: String,
    /// Where.
    pub line: usize,
}

/// One Rust file.
#[derive(Debug)]
pub struct Source {
    /// Relative to the workspace.
    pub path: String,
    /// As it is.
    pub text: String,
    /// Nothing in it is part of the product.
    pub is_test: bool,
    /// Lines of code outside tests.
    pub lines: usize,
    /// Lines of code in tests inside this file.
    pub test_lines: usize,
    /// Functions outside tests.
    pub functions: Vec<Function>,
    /// Names of functions marked `#[test]`.
    pub tests: Vec<String>,
    /// Paths mentioned outside tests.
    pub mentions: Vec<Mention>,
    test_ranges: Vec<RangeInclusive<usize>>,
    test_modules: Vec<TestModule>,
}

/// What a `#[cfg(test)] mod name;` declares.
#[derive(Debug, Default)]
struct TestModule {
    name: String,
    /// From `#[path = "…"]`.
    file: Option<String>,
}

impl Source {
    /// Takes `text` apart.
    pub fn parse(path: &str, text: &str) -> Result<Source, String> {
        let failed = |error: &dyn std::fmt::Display| format!("cannot parse {path}: {error}");
        let tokens = TokenStream::from_str(text).map_err(|error| failed(&error))?;
        let file: syn::File = syn::parse2(tokens.clone()).map_err(|error| failed(&error))?;
        let code = code_lines(&tokens, text);
        let mut outline = Outline::default();
        outline.visit_file(&file);
        let in_test = |line: usize| outline.ranges.iter().any(|range| range.contains(&line));
        let functions = outline.functions.iter().filter(|f| !in_test(f.0.line));
        let functions = functions.map(|(function, span)| Function {
            lines: code.range(span.clone()).count(),
            ..function.clone()
        });
        let mut mentions = Vec::new();
        collect_mentions(tokens.clone(), "", &mut mentions);
        mentions.retain(|mention| !in_test(mention.line));
        let mut tests = Vec::new();
        collect_tests(tokens, &mut tests);
        Ok(Source {
            path: path.to_owned(),
            text: text.to_owned(),
            is_test: is_test_path(path),
            lines: code.iter().filter(|line| !in_test(**line)).count(),
            test_lines: code.iter().filter(|line| in_test(**line)).count(),
            functions: functions.collect(),
            tests,
            mentions,
            test_modules: outline.test_modules,
            test_ranges: outline.ranges,
        })
    }

    /// `line` belongs to a test.
    pub fn is_test_line(&self, line: usize) -> bool {
        self.is_test || self.test_ranges.iter().any(|range| range.contains(&line))
    }

    /// The files that `#[cfg(test)] mod name;` in this file may mean.
    pub fn test_module_files(&self) -> Vec<String> {
        let (folder, file) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let stem = file.trim_end_matches(".rs");
        let home = match stem {
            "lib" | "main" | "mod" => folder.to_owned(),
            _ => format!("{folder}/{stem}"),
        };
        let modules = self.test_modules.iter();
        modules
            .flat_map(|TestModule { name, file }| match file {
                Some(file) => vec![format!("{folder}/{file}")],
                None => vec![format!("{home}/{name}.rs"), format!("{home}/{name}/mod.rs")],
            })
            .collect()
    }
}

/// Files below `tests/`, `benches/` and `examples/` are no part of the product.
fn is_test_path(path: &str) -> bool {
    path.split('/')
        .any(|part| matches!(part, "tests" | "benches" | "examples"))
}

/// Functions, test modules and the line ranges of `#[cfg(test)]` items.
#[derive(Default)]
struct Outline {
    functions: Vec<(Function, RangeInclusive<usize>)>,
    ranges: Vec<RangeInclusive<usize>>,
    test_modules: Vec<TestModule>,
}

impl Outline {
    fn function(&mut self, name: &syn::Ident, start: Span, end: Span) {
        let range = start.start().line..=end.end().line;
        let function = Function {
            name: name.to_string(),
            line: *range.start(),
            lines: 0,
        };
        self.functions.push((function, range));
    }
}

impl<'ast> Visit<'ast> for Outline {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if item_attributes(item).iter().any(is_for_tests) {
            let span = item.span();
            self.ranges.push(span.start().line..=span.end().line);
            if let syn::Item::Mod(module) = item
                && module.content.is_none()
            {
                self.test_modules.push(TestModule {
                    name: module.ident.to_string(),
                    file: module.attrs.iter().find_map(path_attribute),
                });
            }
        }
        visit::visit_item(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig.ident, item.sig.span(), item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig.ident, item.sig.span(), item.block.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig.ident, item.sig.span(), block.span());
        }
        visit::visit_trait_item_fn(self, item);
    }
}

fn item_attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[cfg(test)]`, `#[cfg(any(test, …))]`, `#[cfg(all(test, …))]` or `#[test]`.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    let text = list.tokens.to_string().replace(' ', "");
    list.path.is_ident("cfg")
        && (text == "test" || text.starts_with("any(test,") || text.starts_with("all(test,"))
}

/// The file named by `#[path = "file.rs"]`.
fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(file),
            ..
        }) => pair.path.is_ident("path").then(|| file.value()),
        _ => None,
    }
}

/// Lines on which a token lies that is no comment.
fn code_lines(tokens: &TokenStream, text: &str) -> BTreeSet<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let mut code = BTreeSet::new();
    mark_code(tokens.clone(), &lines, &mut code);
    code
}

fn mark_code(tokens: TokenStream, lines: &[&str], code: &mut BTreeSet<usize>) {
    for tree in tokens {
        let span = tree.span();
        // A doc comment is an attribute to the tokenizer, whose tokens all have the comment's span.
        let may_be_comment = match &tree {
            TokenTree::Punct(punct) => matches!(punct.as_char(), '#' | '!'),
            TokenTree::Group(_) => true,
            TokenTree::Ident(_) | TokenTree::Literal(_) => false,
        };
        if may_be_comment && is_comment(span, lines) {
            continue;
        }
        match tree {
            TokenTree::Group(group) => {
                code.insert(group.span_open().start().line);
                code.insert(group.span_close().end().line);
                mark_code(group.stream(), lines, code);
            }
            _ => code.extend(span.start().line..=span.end().line),
        }
    }
}

fn is_comment(span: Span, lines: &[&str]) -> bool {
    let start = span.start();
    let line = lines.get(start.line.wrapping_sub(1)).unwrap_or(&"");
    let rest: String = line.chars().skip(start.column).take(2).collect();
    rest == "//" || rest == "/*"
}

/// Every path in `tokens`; `prefix` is what stands before a `use` group.
fn collect_mentions(tokens: TokenStream, prefix: &str, out: &mut Vec<Mention>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < trees.len() {
        match &trees[at] {
            TokenTree::Ident(ident) => {
                let mut path = format!("{prefix}{ident}");
                let line = ident.span().start().line;
                at += 1;
                while let Some(next) = after_colons(&trees, at) {
                    match next {
                        TokenTree::Ident(ident) => path = format!("{path}::{ident}"),
                        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                            collect_mentions(group.stream(), &format!("{path}::"), out);
                        }
                        _ => break,
                    }
                    at += 3;
                }
                out.push(Mention { path, line });
            }
            TokenTree::Group(group) => {
                collect_mentions(group.stream(), "", out);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// The tree after `::` at `at`.
fn after_colons(trees: &[TokenTree], at: usize) -> Option<&TokenTree> {
    let colon = |at| matches!(trees.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    (colon(at) && colon(at + 1))
        .then(|| trees.get(at + 2))
        .flatten()
}

/// Names of functions after `#[test]`, inside macros such as `proptest!` too.
fn collect_tests(tokens: TokenStream, out: &mut Vec<String>) {
    let mut awaited = false;
    let mut after_fn = false;
    for tree in tokens {
        match tree {
            TokenTree::Group(group) => {
                awaited |= is_test_attribute(&group);
                if group.delimiter() == Delimiter::Brace {
                    awaited = false;
                }
                collect_tests(group.stream(), out);
            }
            TokenTree::Ident(ident) if after_fn => {
                after_fn = false;
                if std::mem::take(&mut awaited) {
                    out.push(ident.to_string());
                }
            }
            TokenTree::Ident(ident) => after_fn = ident == "fn",
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn is_test_attribute(group: &Group) -> bool {
    group.delimiter() == Delimiter::Bracket && group.stream().to_string() == "test"
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"//! Header.

use std::{fs, io::{self, Read}};

/// Doc.
fn product() {
    // A comment.
    let text = "two
lines";
    macro_of!(std::net::TcpStream);
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_test() {
        std::env::args();
    }
    proptest! {
        #[test]
        fn another(x in 0..3) {}
    }
}

#[cfg(test)]
mod more;

#[cfg(test)]
#[path = "far.rs"]
mod elsewhere;
"#;

    #[test]
    fn counts_code_apart_from_comments_and_tests() {
        let source = Source::parse("crates/x/src/lib.rs", TEXT).unwrap();
        assert_eq!(source.lines, 6);
        assert_eq!(
            source.functions,
            [Function {
                name: "product".into(),
                line: 6,
                lines: 5
            }]
        );
        assert_eq!(source.tests, ["a_test", "another"]);
        assert!(source.is_test_line(17) && !source.is_test_line(6));
    }

    #[test]
    fn finds_paths_in_groups_and_macros_but_not_in_tests() {
        let source = Source::parse("crates/x/src/lib.rs", TEXT).unwrap();
        let has = |path: &str| source.mentions.iter().any(|m| m.path == path);
        assert!(has("std::fs") && has("std::io::Read") && has("std::net::TcpStream"));
        assert!(!has("std::env::args"));
    }

    #[test]
    fn knows_where_test_modules_live() {
        let at = |path| Source::parse(path, TEXT).unwrap().test_module_files();
        assert!(at("crates/x/src/lib.rs").contains(&"crates/x/src/more.rs".into()));
        assert!(at("crates/x/src/y.rs").contains(&"crates/x/src/y/more.rs".into()));
        assert!(at("crates/x/src/y.rs").contains(&"crates/x/src/far.rs".into()));
    }
}
