//! A Markdown file: headings and links, fenced blocks left out.

/// A heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    /// Without the number signs.
    pub text: String,
    /// How many of them.
    pub depth: usize,
    /// Where.
    pub line: usize,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// What is between the parentheses.
    pub target: String,
    /// Where.
    pub line: usize,
}

/// One Markdown file.
#[derive(Debug)]
pub struct Document {
    /// Relative to the workspace.
    pub path: String,
    /// As it is.
    pub text: String,
    /// Its headings.
    pub headings: Vec<Heading>,
    /// Its links.
    pub links: Vec<Link>,
}

impl Document {
    /// Takes `text` apart.
    pub fn new(path: &str, text: &str) -> Document {
        let mut document = Document {
            path: path.to_owned(),
            text: text.to_owned(),
            headings: Vec::new(),
            links: Vec::new(),
        };
        let mut fenced = false;
        for (line, content) in (1..).zip(text.lines()) {
            if content.trim_start().starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                document.read_line(line, content);
            }
        }
        document
    }

    fn read_line(&mut self, line: usize, content: &str) {
        let depth = content.chars().take_while(|c| *c == '#').count();
        if depth > 0 && content[depth..].starts_with(' ') {
            self.headings.push(Heading {
                text: content[depth..].trim().to_owned(),
                depth,
                line,
            });
        }
        let plain = without_code(content);
        let targets = plain.split("](").skip(1);
        self.links.extend(targets.filter_map(|rest| {
            let target = rest.split(')').next()?.split_whitespace().next()?;
            Some(Link {
                target: target.to_owned(),
                line,
            })
        }));
    }

    /// The anchors its headings make, as the usual renderers spell them.
    pub fn anchors(&self) -> Vec<String> {
        self.headings.iter().map(|h| anchor(&h.text)).collect()
    }

    /// Paragraphs with the line each starts on.
    pub fn paragraphs(&self) -> Vec<(usize, String)> {
        let mut paragraphs: Vec<(usize, String)> = Vec::new();
        let mut inside = false;
        for (line, content) in (1..).zip(self.text.lines()) {
            if content.trim().is_empty() {
                inside = false;
                continue;
            }
            match paragraphs.last_mut().filter(|_| inside) {
                Some((_, text)) => *text = format!("{text} {}", content.trim()),
                None => paragraphs.push((line, content.trim().to_owned())),
            }
            inside = true;
        }
        paragraphs
    }
}

/// `content` without what is between backquotes.
fn without_code(content: &str) -> String {
    content.split('`').step_by(2).collect()
}

fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .replace(' ', "-")
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_headings_links_and_paragraphs_outside_fences() {
        let text = "# A b, c\n\nSee [x](docs/x.md#top) and `[y](z)`.\nMore.\n\n```\n# no\n```\n";
        let document = Document::new("README.md", text);
        assert_eq!(document.anchors(), ["a-b-c"]);
        assert_eq!(document.links.len(), 1);
        assert_eq!(document.links[0].target, "docs/x.md#top");
        let (line, paragraph) = document.paragraphs()[1].clone();
        assert!(line == 3 && paragraph.ends_with("More."));
    }
}
