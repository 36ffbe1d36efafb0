//! The stack machine that a pickle is a program for.

use super::{Id, Name, Problem, Tensor, Value, kind, op, size};
use std::collections::BTreeMap;

pub(super) const ENDS: &str = "ends too soon";
const EMPTY: &str = "takes a value where there is none";
/// Bytes of the longest name of a storage, and dimensions of a tensor at most. Values refer to each
/// other, but these are copied where they are used, and may be used again and again.
const LONGEST_KEY: usize = 64;
const MOST_DIMS: usize = 8;

/// Its state between two opcodes.
pub(super) struct Machine<'a> {
    rest: &'a [u8],
    pub values: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: BTreeMap<u32, Id>,
}

impl<'a> Machine<'a> {
    /// One that has the whole pickle before it.
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest, values: vec![], stack: vec![], marks: vec![], memo: BTreeMap::new() }
    }

    /// Does what an opcode says.
    pub fn step(&mut self, opcode: u8) -> Result<(), Problem> {
        match opcode {
            op::PROTO => match self.take(1)?[0] {
                2..=5 => {}
                other => return Err(format!("has protocol {other}; 2 to 5 are read")),
            },
            op::FRAME => drop(self.take(8)?),
            op::MARK => self.marks.push(self.stack.len()),
            op::NONE => self.push(Value::None),
            op::NEWTRUE => self.push(Value::Bool(true)),
            op::NEWFALSE => self.push(Value::Bool(false)),
            op::BININT1 | op::BININT2 | op::BININT | op::LONG1 => {
                let int = self.int(opcode)?;
                self.push(Value::Int(int));
            }
            op::BINFLOAT => {
                let float = f64::from_be_bytes(self.array()?);
                self.push(Value::Float(float));
            }
            op::BINUNICODE | op::SHORT_BINUNICODE => {
                let length = match opcode {
                    op::BINUNICODE => u32::from_le_bytes(self.array()?) as usize,
                    _ => usize::from(self.take(1)?[0]),
                };
                let text = self.text(length)?;
                self.push(Value::Text(text));
            }
            op::EMPTY_LIST => self.push(Value::List(vec![])),
            op::EMPTY_DICT => self.push(Value::Dict(vec![])),
            op::EMPTY_TUPLE => self.push(Value::Tuple(vec![])),
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 | op::TUPLE => {
                let items = match opcode {
                    op::TUPLE => self.pop_to_mark()?,
                    _ => self.pop_many(usize::from(opcode - op::TUPLE1) + 1)?,
                };
                self.push(Value::Tuple(items));
            }
            op::APPEND | op::APPENDS | op::SETITEM | op::SETITEMS | op::BUILD => {
                self.fill(opcode)?;
            }
            op::BINPUT | op::LONG_BINPUT | op::MEMOIZE | op::BINGET | op::LONG_BINGET => {
                self.remember(opcode)?;
            }
            op::GLOBAL => {
                let (module, name) = (self.line()?, self.line()?);
                self.name(&module, &name)?;
            }
            op::STACK_GLOBAL => {
                let names = self.pop_many(2)?;
                match [&self.values[names[0]], &self.values[names[1]]] {
                    [Value::Text(module), Value::Text(name)] => {
                        let (module, name) = (module.clone(), name.clone());
                        self.name(&module, &name)?;
                    }
                    _ => return Err("has a name that is no text".into()),
                }
            }
            op::REDUCE => self.call()?,
            op::BINPERSID => self.storage()?,
            other => return Err(format!("has the opcode {other:#04x}, which no checkpoint needs")),
        }
        Ok(())
    }

    /// Puts what lies on top into the value beneath it.
    fn fill(&mut self, opcode: u8) -> Result<(), Problem> {
        let items = match opcode {
            op::APPEND | op::BUILD => self.pop_many(1)?,
            op::SETITEM => self.pop_many(2)?,
            _ => self.pop_to_mark()?,
        };
        match (opcode, self.top()?) {
            (op::APPEND | op::APPENDS, Value::List(list)) => list.extend(items),
            (op::SETITEM | op::SETITEMS, Value::Dict(dict)) => {
                let pairs = items.as_chunks::<2>().0.iter().map(|&[key, value]| (key, value));
                dict.extend(pairs);
            }
            // The only state that PyTorch gives an object is a dict's `_metadata`.
            (op::BUILD, Value::Dict(_)) => {}
            (opcode, other) => {
                let does = match opcode {
                    op::APPEND | op::APPENDS => "appends to",
                    op::BUILD => "sets the state of",
                    _ => "sets items of",
                };
                return Err(format!("{does} {}", kind(other)));
            }
        }
        Ok(())
    }

    /// Numbers the value on top, or puts one there by its number.
    fn remember(&mut self, opcode: u8) -> Result<(), Problem> {
        let place = match opcode {
            op::BINPUT | op::BINGET => u32::from(self.take(1)?[0]),
            op::LONG_BINPUT | op::LONG_BINGET => u32::from_le_bytes(self.array()?),
            _ => self.memo.len() as u32,
        };
        if let op::BINGET | op::LONG_BINGET = opcode {
            let id = self.memo.get(&place).ok_or("remembers what it never made")?;
            self.stack.push(*id);
        } else {
            self.memo.insert(place, *self.stack.last().ok_or(EMPTY)?);
        }
        Ok(())
    }

    fn name(&mut self, module: &str, name: &str) -> Result<(), Problem> {
        let known = Name::known(module, name).ok_or_else(|| {
            let name: String = format!("{module}.{name}").escape_debug().take(100).collect();
            format!("asks for {name}, which no checkpoint needs; nothing of it was run")
        })?;
        self.push(Value::Name(known));
        Ok(())
    }

    /// The value of a known name and its arguments.
    fn call(&mut self) -> Result<(), Problem> {
        let [name, arguments] = self.pop_many(2)?[..] else { unreachable!("two were asked for") };
        let Value::Tuple(arguments) = &self.values[arguments] else {
            return Err("calls something without arguments".into());
        };
        let argument = |i: usize| arguments.get(i).map(|&id| (id, &self.values[id]));
        let value = match (&self.values[name], arguments.len()) {
            (Value::Name(Name::OrderedDict), 0) => Value::Dict(vec![]),
            (Value::Name(Name::RebuildTensor), 6..) => {
                let (storage, offset) = (argument(0), argument(1).map(|(_, value)| value));
                let [shape, strides] = [2, 3].map(|i| argument(i).and_then(|(_, v)| self.sizes(v)));
                match (storage, offset.and_then(size), shape, strides) {
                    (
                        Some((storage, Value::Storage { .. })),
                        Some(offset),
                        Some(shape),
                        Some(strides),
                    ) if shape.len() == strides.len() => {
                        Value::Tensor(Box::new(Tensor { storage, offset, shape, strides }))
                    }
                    _ => {
                        return Err(
                            "has a tensor that is not put together as PyTorch does it".into()
                        );
                    }
                }
            }
            (Value::Name(Name::RebuildParameter), 1..) => {
                self.stack.push(arguments[0]);
                return Ok(());
            }
            (Value::Name(name), n) => return Err(format!("calls {name:?} with {n} arguments")),
            (other, _) => return Err(format!("calls {}", kind(other))),
        };
        self.push(value);
        Ok(())
    }

    /// `('storage', FloatStorage, key, device, length)` as the storage it stands for.
    fn storage(&mut self) -> Result<(), Problem> {
        let id = self.pop()?;
        let Value::Tuple(parts) = &self.values[id] else {
            return Err("has a storage that is no tuple".into());
        };
        let mut parts = parts.iter().map(|&id| &self.values[id]);
        let value = match [parts.next(), parts.next(), parts.next()] {
            [
                Some(Value::Text(tag)),
                Some(Value::Name(Name::Storage(of))),
                Some(Value::Text(key)),
            ] if tag == "storage" && key.len() <= LONGEST_KEY => {
                Value::Storage { of, key: key.clone() }
            }
            _ => return Err("has a storage that is not described as PyTorch does it".into()),
        };
        self.push(value);
        Ok(())
    }

    fn sizes(&self, tuple: &Value) -> Option<Vec<usize>> {
        let Value::Tuple(items) = tuple else { return None };
        if items.len() > MOST_DIMS {
            return None;
        }
        items.iter().map(|&id| size(&self.values[id])).collect()
    }

    fn int(&mut self, opcode: u8) -> Result<i64, Problem> {
        Ok(match opcode {
            op::BININT1 => i64::from(self.take(1)?[0]),
            op::BININT2 => i64::from(u16::from_le_bytes(self.array()?)),
            op::BININT => i64::from(i32::from_le_bytes(self.array()?)),
            _ => {
                let length = usize::from(self.take(1)?[0]);
                let bytes = self.take(length)?;
                if length > 8 {
                    return Err(format!("has a number of {length} bytes"));
                }
                let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
                let mut whole = [if negative { 0xFF } else { 0 }; 8];
                whole[..length].copy_from_slice(bytes);
                i64::from_le_bytes(whole)
            }
        })
    }

    fn push(&mut self, value: Value) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    pub fn pop(&mut self) -> Result<Id, Problem> {
        Ok(self.pop_many(1)?[0])
    }

    /// The last `n` values, above the last mark.
    fn pop_many(&mut self, n: usize) -> Result<Vec<Id>, Problem> {
        let bottom = self.marks.last().copied().unwrap_or(0);
        let at = self.stack.len().checked_sub(n).filter(|&at| at >= bottom).ok_or(EMPTY)?;
        Ok(self.stack.split_off(at))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, Problem> {
        let mark = self.marks.pop().ok_or("goes back to a mark that it never set")?;
        Ok(self.stack.split_off(mark))
    }

    fn top(&mut self) -> Result<&mut Value, Problem> {
        let top = *self.stack.last().ok_or(EMPTY)?;
        Ok(&mut self.values[top])
    }

    pub fn take(&mut self, n: usize) -> Result<&[u8], Problem> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(ENDS)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        Ok(self.take(N)?.try_into().expect("as many as were asked for"))
    }

    fn text(&mut self, length: usize) -> Result<String, Problem> {
        // Python writes lone surrogates, which are no text; nothing that is looked up has them.
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    fn line(&mut self) -> Result<String, Problem> {
        let length = self.rest.iter().position(|&byte| byte == b'\n').ok_or(ENDS)?;
        let line = self.text(length)?;
        self.take(1)?;
        Ok(line)
    }
}
