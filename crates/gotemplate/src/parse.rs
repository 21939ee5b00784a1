//! The parser: the grammar of Go's text/template.
//!
//! The parser resolves names of variables and functions. An undeclared variable is an error; an undefined function
//! fails when it is called.

use std::collections::{BTreeSet, HashMap};

mod operand;
mod pipeline;

use super::Delims;
use super::error::Syntax;
use super::function::Functions;
use super::lex::{self, At, Token};
use super::literal;
use super::node::{Branch, Node, Span, Tree};

/// The maximum nesting of blocks and parentheses, in levels. It bounds the recursion of the parser and the evaluator.
const MAX_NESTING: usize = 100;

type Fault = (Syntax, usize);

/// Parses a template; returns its tree, or its first fault with the fault's offset.
pub(super) fn tree(text: &str, delims: Delims, functions: &Functions) -> Result<Tree, Fault> {
    let tokens = &lex::tokens(text, delims)?;
    let mut parser = Parser {
        tokens,
        next: 0,
        functions,
        scope: vec!["$"],
        ranges: 0,
        nesting: 0,
        named: HashMap::new(),
        undefined: BTreeSet::new(),
    };
    let root = parser.top()?;
    Ok(Tree {
        root,
        named: parser.named,
        undefined: parser.undefined.into_iter().collect(),
        delims,
        functions: functions.clone(),
    })
}

struct Parser<'t, 's> {
    tokens: &'s [At<'t>],
    next: usize,
    functions: &'s Functions,
    /// The names of the visible variables; a variable's index is its slot.
    scope: Vec<&'t str>,
    ranges: usize,
    nesting: usize,
    named: HashMap<String, Vec<Node>>,
    undefined: BTreeSet<String>,
}

/// The action that ends a list of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    End,
    Else,
}

/// A node, or the action that ends the list.
enum Item {
    Node(Node),
    End(End),
}

impl<'t> Parser<'t, '_> {
    fn peek(&self) -> Token<'t> {
        self.tokens.get(self.next).map_or(Token::End, |(token, _)| *token)
    }

    fn at(&self) -> usize {
        let at = |(_, at): &At<'_>| *at;
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, at)
    }

    fn advance(&mut self) -> Token<'t> {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn skip_space(&mut self) {
        while self.peek() == Token::Space {
            self.next += 1;
        }
    }

    fn unexpected<T>(&self, context: &'static str) -> Result<T, Fault> {
        Err((Syntax::Unexpected { found: describe(self.peek()), context }, self.at()))
    }

    fn expect(&mut self, token: Token<'_>, context: &'static str) -> Result<(), Fault> {
        self.skip_space();
        if self.peek() != token {
            return self.unexpected(context);
        }
        self.next += 1;
        Ok(())
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.nesting == MAX_NESTING {
            return Err((Syntax::TooDeep(MAX_NESTING), self.at()));
        }
        self.nesting += 1;
        let parsed = parse(self);
        self.nesting -= 1;
        parsed
    }

    fn top(&mut self) -> Result<Vec<Node>, Fault> {
        let mut nodes = Vec::new();
        loop {
            let at = self.at();
            if self.peek() == Token::End {
                return Ok(nodes);
            }
            if self.is_define() {
                self.define()?;
                continue;
            }
            match self.item()? {
                Item::Node(node) => nodes.push(node),
                Item::End(end) => {
                    let found = if end == End::End { "{{end}}" } else { "{{else}}" }.to_owned();
                    return Err((Syntax::Unexpected { found, context: "input" }, at));
                }
            }
        }
    }

    fn is_define(&self) -> bool {
        let mut tokens =
            self.tokens[self.next..].iter().map(|(token, _)| *token).filter(|token| *token != Token::Space);
        tokens.next() == Some(Token::Left) && tokens.next() == Some(Token::Word("define"))
    }

    fn define(&mut self) -> Result<(), Fault> {
        self.next += 1;
        self.expect(Token::Word("define"), "define clause")?;
        let at = self.at();
        let name = self.name("define clause")?;
        self.expect(Token::Right, "define clause")?;
        let nodes = self.definition("define clause")?;
        self.add(name, nodes, at)
    }

    /// Parses the body of a definition, in which `$` is the only visible variable.
    fn definition(&mut self, context: &'static str) -> Result<Vec<Node>, Fault> {
        let scope = std::mem::replace(&mut self.scope, vec!["$"]);
        let ranges = std::mem::take(&mut self.ranges);
        let (nodes, end) = self.nested(Self::list)?;
        self.scope = scope;
        self.ranges = ranges;
        match end {
            End::End => Ok(nodes),
            End::Else => Err((Syntax::Unexpected { found: "{{else}}".to_owned(), context }, self.at())),
        }
    }

    /// Adds a definition. An empty definition does not replace a definition with content; a second one with content is
    /// an error.
    fn add(&mut self, name: String, nodes: Vec<Node>, at: usize) -> Result<(), Fault> {
        let empty =
            |nodes: &[Node]| nodes.iter().all(|node| matches!(node, Node::Text(text) if text.trim().is_empty()));
        match self.named.get(&name) {
            Some(present) if !empty(present) && !empty(&nodes) => Err((Syntax::Redefined(name), at)),
            Some(present) if !empty(present) => Ok(()),
            _ => {
                self.named.insert(name, nodes);
                Ok(())
            }
        }
    }

    /// Parses nodes up to the `end` or `else` that belongs to the block.
    fn list(&mut self) -> Result<(Vec<Node>, End), Fault> {
        let mut nodes = Vec::new();
        loop {
            match self.item()? {
                Item::Node(node) => nodes.push(node),
                Item::End(end) => return Ok((nodes, end)),
            }
        }
    }

    fn item(&mut self) -> Result<Item, Fault> {
        match self.peek() {
            Token::Text(text) => {
                self.next += 1;
                Ok(Item::Node(Node::Text(text.into())))
            }
            Token::Left => {
                self.next += 1;
                self.skip_space();
                self.action()
            }
            _ => self.unexpected("input"),
        }
    }

    fn action(&mut self) -> Result<Item, Fault> {
        let Token::Word(word) = self.peek() else {
            return Ok(Item::Node(Node::Action(self.pipeline("command", Token::Right)?)));
        };
        let start = self.at();
        self.next += 1;
        match word {
            "if" => Ok(Item::Node(Node::If(self.branch("if")?))),
            "with" => Ok(Item::Node(Node::With(self.branch("with")?))),
            "range" => Ok(Item::Node(Node::Range(self.branch("range")?))),
            "template" => self.template(start).map(Item::Node),
            "block" => self.block(start).map(Item::Node),
            "end" => self.expect(Token::Right, "end").map(|()| Item::End(End::End)),
            "else" => self.otherwise(),
            "break" => self.leave("break", Node::Break),
            "continue" => self.leave("continue", Node::Continue),
            "define" => {
                self.next -= 1;
                self.unexpected("a block")
            }
            _ => {
                self.next -= 1;
                Ok(Item::Node(Node::Action(self.pipeline("command", Token::Right)?)))
            }
        }
    }

    /// Parses the rest of an `else` action. An `if` or `with` in the same action is left to [`Self::branch`].
    fn otherwise(&mut self) -> Result<Item, Fault> {
        self.skip_space();
        if !matches!(self.peek(), Token::Word("if" | "with")) {
            self.expect(Token::Right, "else")?;
        }
        Ok(Item::End(End::Else))
    }

    fn leave(&mut self, word: &'static str, node: Node) -> Result<Item, Fault> {
        self.expect(Token::Right, word)?;
        match self.ranges {
            0 => Err((Syntax::OutsideRange(word), self.at())),
            _ => Ok(Item::Node(node)),
        }
    }

    fn branch(&mut self, word: &'static str) -> Result<Branch, Fault> {
        let variables = self.scope.len();
        let pipe = self.pipeline(word, Token::Right)?;
        let declared = self.scope.len();
        let in_range = usize::from(word == "range");
        self.ranges += in_range;
        let (body, end) = self.nested(Self::list)?;
        self.ranges -= in_range;
        // Variables of the body are not visible in `else`.
        self.scope.truncate(declared);
        let otherwise = match end {
            End::End => Vec::new(),
            End::Else => self.nested(|parser| parser.alternative(word))?,
        };
        self.scope.truncate(variables);
        Ok(Branch { pipe, body, otherwise })
    }

    /// Parses the rest of `{{else if x}}…{{end}}`, which means `{{else}}{{if x}}…{{end}}{{end}}`.
    fn alternative(&mut self, word: &'static str) -> Result<Vec<Node>, Fault> {
        match (word, self.peek()) {
            ("if", Token::Word("if")) => {
                self.next += 1;
                Ok(vec![Node::If(self.branch("if")?)])
            }
            ("with", Token::Word("with")) => {
                self.next += 1;
                Ok(vec![Node::With(self.branch("with")?)])
            }
            _ => match self.list()? {
                (nodes, End::End) => Ok(nodes),
                (_, End::Else) => {
                    Err((Syntax::Unexpected { found: "{{else}}".to_owned(), context: "else" }, self.at()))
                }
            },
        }
    }

    fn name(&mut self, context: &'static str) -> Result<String, Fault> {
        self.skip_space();
        let name = match self.peek() {
            Token::Quoted(quoted) => {
                literal::string(quoted).ok_or_else(|| (Syntax::Literal(quoted.to_owned()), self.at()))?
            }
            Token::Raw(text) => text.to_owned(),
            _ => return self.unexpected(context),
        };
        self.next += 1;
        Ok(name)
    }

    fn template(&mut self, start: usize) -> Result<Node, Fault> {
        let name = self.name("template clause")?;
        self.skip_space();
        if self.peek() == Token::Right {
            self.next += 1;
            return Ok(Node::Template(self.span(start), name.into(), None));
        }
        let pipe = self.pipeline("template clause", Token::Right)?;
        Ok(Node::Template(self.span(start), name.into(), Some(pipe)))
    }

    fn block(&mut self, start: usize) -> Result<Node, Fault> {
        let name = self.name("block clause")?;
        let pipe = self.pipeline("block clause", Token::Right)?;
        let span = self.span(start);
        let nodes = self.definition("block clause")?;
        self.add(name.clone(), nodes, start)?;
        Ok(Node::Template(span, name.into(), Some(pipe)))
    }

    /// Returns the span from `start` to the beginning of the last token that was taken.
    fn span(&self, start: usize) -> Span {
        let end = self.next.checked_sub(1).and_then(|last| self.tokens.get(last)).map_or(start, |(_, at)| *at);
        (narrow(start), narrow(end))
    }

    /// Returns the span from `start` to the beginning of the next token.
    fn span_to_here(&self, start: usize) -> Span {
        (narrow(start), narrow(self.at()))
    }
}

/// Converts an offset to 32 bits. In a template beyond 4 GiB, errors would only point at the wrong place.
fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Formats a token for an error message.
fn describe(token: Token<'_>) -> String {
    match token {
        Token::Text(_) => "text".to_owned(),
        Token::Left => "the start of an action".to_owned(),
        Token::Right => "the end of the action".to_owned(),
        Token::Space => "a space".to_owned(),
        Token::Dot => "\".\"".to_owned(),
        Token::Field(name) => format!("\".{name}\""),
        Token::Variable(text) | Token::Word(text) | Token::Number(text) | Token::Char(text) | Token::Quoted(text) => {
            format!("{text:?}")
        }
        Token::Raw(text) => format!("`{text}`"),
        Token::Declare => "\":=\"".to_owned(),
        Token::Assign => "\"=\"".to_owned(),
        Token::Pipe => "\"|\"".to_owned(),
        Token::Open => "\"(\"".to_owned(),
        Token::Close => "\")\"".to_owned(),
        Token::Comma => "\",\"".to_owned(),
        Token::End => "the end of the template".to_owned(),
    }
}
