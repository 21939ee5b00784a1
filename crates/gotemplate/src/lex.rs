//! Text and actions of a template as tokens, with trim markers and comments already applied.
//!
//! Spaces inside of actions are tokens, because they separate arguments.

use super::Delims;
use super::error::Syntax;

/// One token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'t> {
    /// Text outside of actions.
    Text(&'t str),
    /// The start of an action.
    Left,
    /// The end of an action.
    Right,
    /// White space inside of an action.
    Space,
    /// A single `.`.
    Dot,
    /// `.name`, without its dot.
    Field(&'t str),
    /// `$name`, with its dollar.
    Variable(&'t str),
    /// A function or a keyword.
    Word(&'t str),
    /// A number.
    Number(&'t str),
    /// A character constant, with its quotes.
    Char(&'t str),
    /// A string, with its quotes.
    Quoted(&'t str),
    /// A raw string, without its quotes.
    Raw(&'t str),
    /// `:=`
    Declare,
    /// `=`
    Assign,
    /// `|`
    Pipe,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `,`
    Comma,
    /// The end of the template.
    End,
}

/// A token and the byte offset at which it starts.
pub(super) type At<'t> = (Token<'t>, usize);

const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
const MARKER: usize = 2;

/// Returns all tokens, the last of which is [`Token::End`], or the first fault and its position.
pub(super) fn tokens<'t>(text: &'t str, delims: Delims) -> Result<Vec<At<'t>>, (Syntax, usize)> {
    let mut lexer = Lexer { text, delims, at: 0, tokens: Vec::new() };
    lexer.run()?;
    lexer.tokens.push((Token::End, text.len()));
    Ok(lexer.tokens)
}

struct Lexer<'t> {
    text: &'t str,
    delims: Delims,
    at: usize,
    tokens: Vec<At<'t>>,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn run(&mut self) -> Result<(), (Syntax, usize)> {
        while let Some(offset) = self.rest().find(self.delims.left) {
            let start = self.at;
            let left = start + offset;
            self.at = left + self.delims.left.len();
            let trimmed = marks_left(self.rest());
            let text = &self.text[start..left];
            self.push_text(if trimmed { text.trim_end_matches(SPACE) } else { text }, start);
            self.at += if trimmed { MARKER } else { 0 };
            match self.rest().starts_with("/*") {
                true => self.comment(left)?,
                false => self.action(left)?,
            }
        }
        self.push_text(self.rest(), self.at);
        Ok(())
    }

    fn push_text(&mut self, text: &'t str, at: usize) {
        if !text.is_empty() {
            self.tokens.push((Token::Text(text), at));
        }
    }

    /// If an action ends here, returns the position after its closing delimiter, and whether the delimiter trims white
    /// space.
    fn right(&self) -> Option<(usize, bool)> {
        let rest = self.rest();
        if marks_right(rest) && rest[MARKER..].starts_with(self.delims.right) {
            return Some((self.at + MARKER + self.delims.right.len(), true));
        }
        rest.starts_with(self.delims.right).then(|| (self.at + self.delims.right.len(), false))
    }

    fn leave(&mut self, (end, trims): (usize, bool)) {
        self.at = end;
        if trims {
            self.at = self.text.len() - self.rest().trim_start_matches(SPACE).len();
        }
    }

    fn comment(&mut self, start: usize) -> Result<(), (Syntax, usize)> {
        let length = self.rest().find("*/").ok_or((Syntax::Unclosed("comment"), start))?;
        self.at += length + "*/".len();
        let end = self.right().ok_or((Syntax::Unclosed("comment"), start))?;
        self.leave(end);
        Ok(())
    }

    fn action(&mut self, start: usize) -> Result<(), (Syntax, usize)> {
        self.tokens.push((Token::Left, start));
        let mut open = 0_usize;
        loop {
            if let Some(end) = self.right() {
                if open > 0 {
                    return Err((Syntax::Unclosed("parenthesis"), start));
                }
                self.tokens.push((Token::Right, self.at));
                self.leave(end);
                return Ok(());
            }
            let at = self.at;
            let token = self.inside(start)?;
            match token {
                Token::Open => open += 1,
                Token::Close if open == 0 => return Err((Syntax::Character(')'), at)),
                Token::Close => open -= 1,
                _ => {}
            }
            self.tokens.push((token, at));
        }
    }

    fn inside(&mut self, start: usize) -> Result<Token<'t>, (Syntax, usize)> {
        let rest = self.rest();
        let first = rest.chars().next().ok_or((Syntax::Unclosed("action"), start))?;
        let simple = match first {
            '=' => Some(Token::Assign),
            '|' => Some(Token::Pipe),
            '(' => Some(Token::Open),
            ')' => Some(Token::Close),
            ',' => Some(Token::Comma),
            _ => None,
        };
        if let Some(token) = simple {
            self.at += 1;
            return Ok(token);
        }
        match first {
            space if SPACE.contains(&space) => Ok(self.space()),
            ':' if rest.starts_with(":=") => {
                self.at += 2;
                Ok(Token::Declare)
            }
            '"' => self.quoted('"').map(Token::Quoted),
            '\'' => self.quoted('\'').map(Token::Char),
            '`' => self.raw(),
            '$' => self.name(1).map(Token::Variable),
            '.' if !rest[1..].starts_with(|next: char| next.is_ascii_digit()) => match self.name(1)? {
                "." => Ok(Token::Dot),
                field => Ok(Token::Field(&field[1..])),
            },
            '.' | '+' | '-' | '0'..='9' => self.number(),
            first if is_word(first) => self.name(0).map(Token::Word),
            first => Err((Syntax::Character(first), self.at)),
        }
    }

    /// Reads white space. A space before a trim marker is left to the end of the action.
    fn space(&mut self) -> Token<'t> {
        let rest = self.rest();
        let mut length = rest.len() - rest.trim_start_matches(SPACE).len();
        let ends = rest[length..].strip_prefix('-').is_some_and(|after| after.starts_with(self.delims.right));
        if ends && length > 1 {
            length -= 1;
        }
        self.at += length;
        Token::Space
    }

    /// Reads a name: the first `skipped` bytes (the `.` of a field or the `$` of a variable), and the word characters
    /// after them.
    fn name(&mut self, skipped: usize) -> Result<&'t str, (Syntax, usize)> {
        let rest = self.rest();
        let length = rest[skipped..].find(|next| !is_word(next)).map_or(rest.len(), |length| length + skipped);
        self.at += length;
        let terminators = [' ', '\t', '\r', '\n', '.', ',', '|', ':', ')', '('];
        match self.rest().chars().next() {
            Some(next) if !terminators.contains(&next) && !self.rest().starts_with(self.delims.right) => {
                Err((Syntax::Character(next), self.at))
            }
            _ => Ok(&rest[..length]),
        }
    }

    fn quoted(&mut self, quote: char) -> Result<&'t str, (Syntax, usize)> {
        let rest = self.rest();
        let mut escaped = false;
        for (at, next) in rest.char_indices().skip(1) {
            match next {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                next if next == quote => {
                    self.at += at + 1;
                    return Ok(&rest[..=at]);
                }
                _ => {}
            }
        }
        Err((Syntax::Unclosed("string"), self.at))
    }

    fn raw(&mut self) -> Result<Token<'t>, (Syntax, usize)> {
        let inner = &self.rest()[1..];
        let length = inner.find('`').ok_or((Syntax::Unclosed("raw string"), self.at))?;
        self.at += length + 2;
        Ok(Token::Raw(&inner[..length]))
    }

    /// Reads the characters of a number; `literal` interprets them.
    fn number(&mut self) -> Result<Token<'t>, (Syntax, usize)> {
        let rest = self.rest();
        let unsigned = rest.trim_start_matches(['+', '-']);
        let signs = rest.len() - unsigned.len();
        let hexadecimal = unsigned.starts_with("0x") || unsigned.starts_with("0X");
        let mut previous = ' ';
        let length = unsigned.find(|next: char| {
            let exponent = matches!(previous, 'e' | 'E') && !hexadecimal || matches!(previous, 'p' | 'P');
            previous = next;
            !(is_word(next) || next == '.' || exponent && matches!(next, '+' | '-'))
        });
        let mut length = length.unwrap_or(unsigned.len()) + signs;
        // The imaginary part of a complex number follows its real part.
        let imaginary = |rest: &str| {
            let part = rest.strip_prefix(['+', '-'])?;
            let end = part.find(|next: char| !(is_word(next) || next == '.')).unwrap_or(part.len());
            (part.starts_with(|next: char| next.is_ascii_digit()) && part[..end].ends_with('i')).then_some(end + 1)
        };
        length += imaginary(&rest[length..]).unwrap_or_default();
        self.at += length;
        Ok(Token::Number(&rest[..length]))
    }
}

fn is_word(next: char) -> bool {
    next == '_' || next.is_alphanumeric()
}

fn marks_left(rest: &str) -> bool {
    rest.strip_prefix('-').is_some_and(|after| after.starts_with(SPACE))
}

fn marks_right(rest: &str) -> bool {
    rest.strip_prefix(SPACE).is_some_and(|after| after.starts_with('-'))
}
