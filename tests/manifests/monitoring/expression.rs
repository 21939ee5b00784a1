//! Finds the metrics and labels in a PromQL expression. promtool checks the grammar.

use std::collections::BTreeSet;

/// A metric with the matchers of its labels.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) metric: String,
    /// Names and values of labels; a value may be a regular expression.
    pub(super) matchers: Vec<(String, String)>,
}

/// The metrics and labels that an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Expression {
    pub(super) selectors: Vec<Selector>,
    /// The labels after `by`, `on` and similar keywords.
    pub(super) grouping: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(char),
}

const OPERATORS: [&str; 5] = ["and", "or", "unless", "offset", "bool"];
const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

impl Expression {
    pub(super) fn parse(text: &str) -> Self {
        let tokens = tokens(text);
        let (mut expression, mut rest) = (Self::default(), tokens.as_slice());
        while let Some((token, after)) = rest.split_first() {
            rest = after;
            let Token::Word(word) = token else { continue };
            let open = match after.first() {
                Some(Token::Sign(sign @ ('(' | '{'))) => Some(*sign),
                _ => None,
            };
            let list = |close: char| {
                let end = after.iter().position(|token| *token == Token::Sign(close)).unwrap_or(after.len());
                after.split_at(end)
            };
            if GROUPING.contains(&word.as_str()) {
                let (labels, behind) = list(')');
                expression.grouping.extend(words(labels));
                rest = behind;
            } else if open == Some('{') {
                let (matchers, behind) = list('}');
                let values = matchers.iter().filter_map(|token| match token {
                    Token::Text(value) => Some(value.clone()),
                    _ => None,
                });
                let matchers = words(matchers).zip(values).collect();
                expression.selectors.push(Selector { metric: word.clone(), matchers });
                rest = behind;
            } else if open.is_none() && !OPERATORS.contains(&word.as_str()) && !is_grouping(after.first()) {
                expression.selectors.push(Selector { metric: word.clone(), matchers: Vec::new() });
            }
        }
        expression
    }
}

/// Whether the token is a keyword that a list of labels follows, such as `by` or `on`.
fn is_grouping(token: Option<&Token>) -> bool {
    matches!(token, Some(Token::Word(word)) if GROUPING.contains(&word.as_str()))
}

fn words(tokens: &[Token]) -> impl Iterator<Item = String> {
    tokens.iter().filter_map(|token| match token {
        Token::Word(word) => Some(word.clone()),
        _ => None,
    })
}

/// Splits an expression into tokens, except ranges, numbers and durations.
fn tokens(text: &str) -> Vec<Token> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let until = |end: &dyn Fn(char) -> bool| rest[1..].find(end).map_or(rest.len(), |at| at + 1);
        let is_in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        let length = match first {
            '"' => {
                let end = until(&|c| c == '"');
                tokens.push(Token::Text(rest[1..end].to_owned()));
                end + 1
            }
            '[' => until(&|c| c == ']') + 1,
            c if c.is_ascii_digit() => until(&|c| !is_in_name(c) && c != '.'),
            c if is_in_name(c) => {
                let end = until(&|c| !is_in_name(c));
                tokens.push(Token::Word(rest[..end].to_owned()));
                end
            }
            c if c.is_whitespace() => c.len_utf8(),
            c => {
                tokens.push(Token::Sign(c));
                c.len_utf8()
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    tokens
}
