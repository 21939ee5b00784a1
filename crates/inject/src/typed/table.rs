//! The table of the API's structs, with their fields in the order of the Go types.

use std::sync::LazyLock;

/// For each struct: a line with its name, a line for each field (key, Go type, omission, merge key), a blank line.
const TEXT: &str = include_str!("table.txt");

/// The parsed table.
#[expect(clippy::expect_used, reason = "the text is compiled in, and a test reads it")]
pub(super) static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(TEXT).expect("the table is well formed"));

/// The Go type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Type {
    String,
    Bool,
    Int32,
    Int64,
    Quantity,
    IntOrString,
    Time,
    /// Any value.
    Raw,
    /// A struct, by its index in the table.
    Struct(usize),
    Pointer(Box<Type>),
    List(Box<Type>),
    /// A map with keys of type string.
    Map(Box<Type>),
}

/// When Go omits a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Omit {
    Never,
    /// The field has the zero of its type, or an empty list or map.
    Zero,
}

/// How a strategic merge patch merges a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The list is a set of scalars.
    Set,
    /// Elements with the same value of this field are merged.
    By(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) key: &'static str,
    pub(super) of: Type,
    pub(super) omit: Omit,
    pub(super) merge: Option<Merge>,
}

#[derive(Debug)]
pub(super) struct Table {
    /// The structs' names, sorted.
    names: Vec<&'static str>,
    fields: Vec<Vec<Field>>,
}

impl Table {
    /// Parses the table. Returns `None` if a line is malformed or names a struct that the table lacks.
    fn parse(text: &'static str) -> Option<Self> {
        let blocks = text.split("\n\n").filter(|block| !block.starts_with('#'));
        let parts: Vec<(&str, &str)> =
            blocks.map(|block| block.split_once('\n').unwrap_or((block.trim_end(), ""))).collect();
        let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
        let fields = parts.iter().map(|(_, lines)| lines.lines().map(|line| Field::parse(line, &names)).collect());
        Some(Self { fields: fields.collect::<Option<_>>()?, names })
    }

    /// Returns the index of a struct.
    pub(super) fn index(&self, name: &str) -> Option<usize> {
        self.names.binary_search(&name).ok()
    }

    pub(super) fn fields(&self, index: usize) -> &[Field] {
        &self.fields[index]
    }
}

impl Field {
    fn parse(line: &'static str, names: &[&str]) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (key, of) = (words.next()?, Type::parse(words.next()?, names)?);
        let mut field = Self { key, of, omit: Omit::Never, merge: None };
        for word in words {
            match word {
                "omitempty" | "omitzero" => field.omit = Omit::Zero,
                "merge" => field.merge = Some(Merge::Set),
                word => field.merge = Some(Merge::By(word.strip_prefix("merge=")?)),
            }
        }
        Some(field)
    }
}

impl Type {
    /// Returns the index of the struct that the type is, points to or lists.
    pub(super) fn index(&self) -> Option<usize> {
        match self {
            Self::Struct(index) => Some(*index),
            Self::Pointer(inner) | Self::List(inner) => inner.index(),
            _ => None,
        }
    }

    /// Whether values of the type are quantities, or point to, list or map to quantities.
    pub(super) fn is_of_quantities(&self) -> bool {
        match self {
            Self::Quantity => true,
            Self::Pointer(inner) | Self::List(inner) | Self::Map(inner) => inner.is_of_quantities(),
            _ => false,
        }
    }

    fn parse(text: &str, names: &[&str]) -> Option<Self> {
        type Wrap = fn(Box<Type>) -> Type;
        let wraps: [(&str, Wrap); 3] = [("*", Self::Pointer), ("[]", Self::List), ("map[string]", Self::Map)];
        for (prefix, wrap) in wraps {
            if let Some(inner) = text.strip_prefix(prefix) {
                return Self::parse(inner, names).map(|inner| wrap(Box::new(inner)));
            }
        }
        Some(match text {
            "string" => Self::String,
            "bool" => Self::Bool,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "quantity" => Self::Quantity,
            "intOrString" => Self::IntOrString,
            "time" => Self::Time,
            "raw" => Self::Raw,
            name => Self::Struct(names.binary_search(&name).ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_well_formed() {
        let table = Table::parse(TEXT).unwrap();
        assert!(table.names.is_sorted(), "a binary search finds structs");
        let container = table.fields(table.index("core.Container").unwrap());
        let field = |key: &str| container.iter().find(|field| field.key == key).unwrap();
        assert_eq!(field("name"), &Field { key: "name", of: Type::String, omit: Omit::Never, merge: None });
        assert_eq!((field("env").omit, field("env").merge), (Omit::Zero, Some(Merge::By("name"))));
        assert_eq!(field("args").of, Type::List(Box::new(Type::String)));
        assert_eq!(field("args").omit, Omit::Zero);
    }

    #[test]
    fn malformed_lines_are_refused() {
        for text in [
            "a.B\n  key\n",
            "a.B\n  key strin\n",
            "a.B\n  key string never\n",
            "a.B\n  key string merges=x\n",
            "a.B\n  key *a.C\n",
        ] {
            assert!(Table::parse(text).is_none(), "{text:?}");
        }
    }
}
