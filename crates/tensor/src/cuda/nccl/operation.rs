//! What is asked of NCCL, as data: which memory goes where. What the processes ask for is made from shapes alone, so that it can be
//! played through without a GPU.

/// One operation. Addresses are of the GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Replaces numbers by their sums over all processes.
    Sum { at: u64, floats: usize },
    /// Puts the bytes of all processes, as many of each, one after another.
    Gather { from: u64, to: u64, bytes: usize },
    /// Sends bytes to a process.
    Send { from: u64, bytes: usize, rank: usize },
    /// Takes what a process sends.
    Receive { to: u64, bytes: usize, rank: usize },
}

/// Bytes of a number that travels rounded.
pub(super) const ROUNDED: usize = 2;
/// Elements that a share of rounded numbers is a multiple of, for copies of whole words.
const SHARE_MULTIPLE: usize = 8;

/// Where numbers are and where they go, `count` neighbours at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leg {
    pub from: u64,
    pub to: u64,
    pub count: usize,
}

/// Some neighbouring numbers of one tensor of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumbersOf {
    pub tensor: usize,
    pub first: usize,
    pub count: usize,
}

/// The numbers of some tensors, one after another, cut into chunks of at most `most`; no chunk is empty.
pub(super) fn chunks(lengths: &[usize], most: usize) -> Vec<Vec<NumbersOf>> {
    let mut chunks: Vec<Vec<NumbersOf>> = Vec::new();
    let mut room = 0;
    for (tensor, &length) in lengths.iter().enumerate() {
        let mut first = 0;
        while first < length {
            if room == 0 {
                chunks.push(Vec::new());
                room = most;
            }
            let count = (length - first).min(room);
            chunks.last_mut().into_iter().for_each(|chunk| chunk.push(NumbersOf { tensor, first, count }));
            first += count;
            room -= count;
        }
    }
    chunks
}

/// How many rounded numbers of a chunk each process adds up.
pub(super) fn share_of(count: usize, ranks: usize) -> usize {
    count.div_ceil(ranks).next_multiple_of(SHARE_MULTIPLE)
}

/// The memory of one chunk of rounded numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoundedChunk {
    /// All of them, in the end all sums: `ranks` shares.
    pub all: u64,
    /// What all processes have for this one to add up: `ranks` shares.
    pub parts: u64,
    /// What it has added up: a share.
    pub sum: u64,
    /// Elements of a share.
    pub share: usize,
}

impl RoundedChunk {
    /// Each process sends every other one the share that it adds up.
    pub(super) fn scatter(&self, ranks: usize) -> Vec<Operation> {
        let bytes = self.share * ROUNDED;
        let both = |rank: usize| {
            let offset = (rank * bytes) as u64;
            [
                Operation::Send { from: self.all + offset, bytes, rank },
                Operation::Receive { to: self.parts + offset, bytes, rank },
            ]
        };
        (0..ranks).flat_map(both).collect()
    }

    /// Each has the sums of its share, and all get those of all.
    pub(super) fn gather(&self) -> [Operation; 1] {
        [Operation::Gather { from: self.sum, to: self.all, bytes: self.share * ROUNDED }]
    }
}
