//! Writes pickles of protocol 2, as PyTorch does: plain values, and tensors in storages beside them.

use super::op;

/// A pickle in the making: a value is written after another, containers around their items.
pub(in crate::formats) struct Pickler(Vec<u8>);

impl Pickler {
    pub fn new() -> Self {
        Self(vec![op::PROTO, 2])
    }

    /// The whole pickle, once its one value is written.
    pub fn finish(mut self) -> Vec<u8> {
        self.0.push(op::STOP);
        self.0
    }

    pub fn bool(&mut self, value: bool) {
        self.0.push(if value { op::NEWTRUE } else { op::NEWFALSE });
    }

    pub fn int(&mut self, value: u64) {
        match i32::try_from(value) {
            Ok(small) => {
                self.0.push(op::BININT);
                self.0.extend(small.to_le_bytes());
            }
            Err(_) => {
                let large = i64::try_from(value).unwrap_or(i64::MAX);
                self.0.extend([op::LONG1, 8]);
                self.0.extend(large.to_le_bytes());
            }
        }
    }

    pub fn float(&mut self, value: f64) {
        self.0.push(op::BINFLOAT);
        self.0.extend(value.to_be_bytes());
    }

    pub fn text(&mut self, text: &str) {
        self.0.push(op::BINUNICODE);
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
    }

    /// A dict of what `items` writes: keys and values in turn.
    pub fn dict(&mut self, items: impl FnOnce(&mut Self)) {
        self.0.extend([op::EMPTY_DICT, op::MARK]);
        items(self);
        self.0.push(op::SETITEMS);
    }

    pub fn list(&mut self, items: impl FnOnce(&mut Self)) {
        self.0.extend([op::EMPTY_LIST, op::MARK]);
        items(self);
        self.0.push(op::APPENDS);
    }

    pub fn tuple(&mut self, items: impl FnOnce(&mut Self)) {
        self.0.push(op::MARK);
        items(self);
        self.0.push(op::TUPLE);
    }

    fn name(&mut self, module: &str, name: &str) {
        self.0.push(op::GLOBAL);
        self.0.extend(format!("{module}\n{name}\n").into_bytes());
    }

    /// A value that none of ours is.
    #[cfg(test)]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// A whole tensor in the storage `key` of that type (`Float`).
    pub fn tensor(&mut self, of: &str, key: usize, shape: &[usize]) {
        self.name("torch._utils", "_rebuild_tensor_v2");
        self.tuple(|p| {
            p.tuple(|p| {
                p.text("storage");
                p.name("torch", &format!("{of}Storage"));
                p.text(&key.to_string());
                p.text("cpu");
                p.int(shape.iter().product::<usize>() as u64);
            });
            p.0.push(op::BINPERSID);
            p.int(0);
            p.tuple(|p| shape.iter().for_each(|&dim| p.int(dim as u64)));
            let strides = (0..shape.len()).map(|i| shape[i + 1..].iter().product::<usize>());
            p.tuple(|p| strides.for_each(|stride| p.int(stride as u64)));
            p.bool(false);
            p.name("collections", "OrderedDict");
            p.0.extend([op::EMPTY_TUPLE, op::REDUCE]);
        });
        self.0.push(op::REDUCE);
    }
}
