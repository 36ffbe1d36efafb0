//! Python's pickles: of all that they can do, what plain values and PyTorch's tensors need.
//!
//! A pickle is a program for a small stack machine, and may call any function of any installed
//! module. **This machine calls none**: it knows five names, each of which only puts values together,
//! and refuses every other by name. It has no opcode by which a name could be made at run time.
//!
//! Values live in one list and point at one another by index, as a pickle's memo does: so shared and
//! even circular values cost nothing, and no value is ever copied or expanded. An opcode adds one
//! value at most, so the list is as long as the pickle at most.

mod machine;
mod writer;

use machine::{ENDS, Machine};
pub(super) use writer::Pickler;

/// Bytes of the longest pickle that is read: ten times a large model's.
pub(super) const LONGEST: u64 = 1 << 23;

/// A value's place in its [`Pickle`].
pub(super) type Id = usize;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    /// Keys and values, in order.
    Dict(Vec<(Id, Id)>),
    Name(Name),
    Storage {
        /// PyTorch's name of the type: `Float` of `FloatStorage`.
        of: &'static str,
        /// The member of the archive that has its bytes.
        key: String,
    },
    Tensor(Box<Tensor>),
}

/// A view of a storage, from an offset and with strides in elements.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor {
    pub storage: Id,
    pub offset: usize,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
}

/// The names that a checkpoint needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Name {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    Storage(&'static str),
}

/// PyTorch's types of storage, without `Storage`.
const STORAGES: [&str; 8] = ["Float", "Half", "BFloat16", "Double", "Long", "Int", "Short", "Bool"];

impl Name {
    /// The name `name` of `module`, if it is one that is known.
    fn known(module: &str, name: &str) -> Option<Self> {
        match (module, name) {
            ("collections", "OrderedDict") => Some(Self::OrderedDict),
            ("torch._utils", "_rebuild_tensor_v2") => Some(Self::RebuildTensor),
            ("torch._utils", "_rebuild_parameter") => Some(Self::RebuildParameter),
            ("torch", name) => {
                let of = name.strip_suffix("Storage")?;
                STORAGES.iter().find(|&&known| known == of).map(|of| Self::Storage(of))
            }
            _ => None,
        }
    }
}

/// What a pickle makes, and everything in it.
#[derive(Debug, PartialEq)]
pub(super) struct Pickle {
    values: Vec<Value>,
    root: Id,
}

/// The opcodes that occur in what Python and PyTorch write, by their names in Python's `pickle`.
mod op {
    pub const PROTO: u8 = 0x80;
    pub const FRAME: u8 = 0x95;
    pub const STOP: u8 = b'.';
    pub const MARK: u8 = b'(';
    pub const NONE: u8 = b'N';
    pub const NEWTRUE: u8 = 0x88;
    pub const NEWFALSE: u8 = 0x89;
    pub const BININT: u8 = b'J';
    pub const BININT1: u8 = b'K';
    pub const BININT2: u8 = b'M';
    pub const LONG1: u8 = 0x8A;
    pub const BINFLOAT: u8 = b'G';
    pub const BINUNICODE: u8 = b'X';
    pub const SHORT_BINUNICODE: u8 = 0x8C;
    pub const EMPTY_TUPLE: u8 = b')';
    pub const TUPLE1: u8 = 0x85;
    pub const TUPLE2: u8 = 0x86;
    pub const TUPLE3: u8 = 0x87;
    pub const TUPLE: u8 = b't';
    pub const EMPTY_LIST: u8 = b']';
    pub const APPEND: u8 = b'a';
    pub const APPENDS: u8 = b'e';
    pub const EMPTY_DICT: u8 = b'}';
    pub const SETITEM: u8 = b's';
    pub const SETITEMS: u8 = b'u';
    pub const BINPUT: u8 = b'q';
    pub const LONG_BINPUT: u8 = b'r';
    pub const MEMOIZE: u8 = 0x94;
    pub const BINGET: u8 = b'h';
    pub const LONG_BINGET: u8 = b'j';
    pub const GLOBAL: u8 = b'c';
    pub const STACK_GLOBAL: u8 = 0x93;
    pub const REDUCE: u8 = b'R';
    pub const BUILD: u8 = b'b';
    pub const BINPERSID: u8 = b'Q';
}

/// What a pickle says that is no value of a checkpoint's, in words that go on after "its pickle".
pub(super) type Problem = String;

impl Pickle {
    /// Reads a pickle of protocol 2 to 5.
    ///
    /// # Errors
    /// What it has that is not read here: a name that is not known, an opcode, or damage.
    pub fn read(bytes: &[u8]) -> Result<Self, Problem> {
        let mut machine = Machine::new(bytes);
        while let Ok(&[opcode]) = machine.take(1) {
            if opcode == op::STOP {
                let root = machine.pop()?;
                return Ok(Self { values: machine.values, root });
            }
            machine.step(opcode)?;
        }
        Err(ENDS.into())
    }

    /// The outermost value.
    pub fn root(&self) -> &Value {
        &self.values[self.root]
    }

    /// The value at `id`.
    pub fn at(&self, id: Id) -> &Value {
        &self.values[id]
    }

    /// What stands under `key` in `dict`; none if that is no dict or has no such key.
    pub fn get<'a>(&'a self, dict: &'a Value, key: &str) -> Option<&'a Value> {
        let is_it = |k: &Value| matches!(k, Value::Text(text) if text == key);
        self.entries(dict).find_map(|(k, value)| is_it(k).then_some(value))
    }

    /// Keys and values of `dict`; nothing if it is none.
    pub fn entries<'a>(&'a self, dict: &'a Value) -> impl Iterator<Item = (&'a Value, &'a Value)> {
        let entries = if let Value::Dict(entries) = dict { &entries[..] } else { &[] };
        entries.iter().map(|&(key, value)| (self.at(key), self.at(value)))
    }
}

/// A size or an offset: a whole number that is not negative.
pub(super) fn size(value: &Value) -> Option<usize> {
    if let Value::Int(int) = value { usize::try_from(*int).ok() } else { None }
}

/// What a value is, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::None => "None",
        Value::Bool(_) => "a truth value",
        Value::Int(_) | Value::Float(_) => "a number",
        Value::Text(_) => "a text",
        Value::Tuple(_) | Value::List(_) => "a list",
        Value::Dict(_) => "a dict",
        Value::Name(_) => "a name",
        Value::Storage { .. } => "a storage",
        Value::Tensor(_) => "a tensor",
    }
}
