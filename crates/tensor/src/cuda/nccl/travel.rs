//! What travels: sums of gradients, numbers of the host, shares that are put together.

use std::ops::Range;

use cudarc::driver::{result, sys};

use super::operation::{Leg, Operation, RoundedChunk};
use super::put::{PutPlan, Recipients};
use super::staging::{Sizes, Staging};
use super::{Communicator, NcclError, driver_error};
use crate::cuda::{CudaBuffer, arguments};
use crate::tensor::{DType, Tensor};

/// Elements of one block; the kernels' `CHUNK`.
const CHUNK: usize = 8192;

/// Numbers of all processes together that are put together at once.
const PUT_AT_ONCE: usize = 16 << 20;

/// Who gets what all processes put together.
#[derive(Debug)]
pub enum Put<'a> {
    /// All of them.
    Everyone(&'a mut [Tensor]),
    /// The first one, which this is.
    First(&'a mut [Tensor]),
    /// The first one, which is another.
    Another,
}

/// Address and length of each tensor, all of them f32 and to be written.
fn places(tensors: &mut [Tensor]) -> Vec<(u64, usize)> {
    let place = |tensor: &mut Tensor| {
        assert_eq!(tensor.dtype(), DType::F32, "parameters and their gradients are f32 on a GPU");
        (tensor.cuda_address_mut(), tensor.len())
    };
    tensors.iter_mut().map(place).collect()
}

impl Communicator {
    /// Bytes of tensors' memory that rounded sums of tensors of these lengths need.
    pub fn staging_bytes(lengths: &[usize], ranks: usize) -> usize {
        Sizes::of(lengths, ranks).bytes()
    }

    /// Takes that memory.
    pub fn prepare_rounded_sums(&mut self, lengths: &[usize]) -> Result<(), NcclError> {
        let sizes = Sizes::of(lengths, self.ranks);
        if self.staging.as_ref().is_some_and(|staging| staging.sizes() == sizes) {
            return Ok(());
        }
        let memory = self.cuda().allocate_piece(sizes.bytes());
        self.cuda().known_failure()?;
        self.staging = memory.map(|memory| Staging::new(memory, sizes));
        Ok(())
    }

    /// Begins to replace tensors by their sums over all processes, which nobody may touch until [`Self::complete_sums`]. All
    /// processes begin the same sums in the same order.
    pub fn begin_sums(&mut self, tensors: &mut [Tensor], rounded: bool) -> Result<(), NcclError> {
        self.cuda().known_failure()?;
        let places = places(tensors);
        self.under_way = true;
        if !rounded {
            self.set_out()?;
            let sum = |&(at, floats): &(u64, usize)| (floats > 0).then_some(Operation::Sum { at, floats });
            return self.queue("summing gradients", &places.iter().filter_map(sum).collect::<Vec<_>>());
        }
        let ranks = self.ranks;
        let boarded = self.staging.as_mut().and_then(|staging| staging.board(&places, ranks));
        let (chunks, legs) = boarded.unwrap_or_else(|| unreachable!("room was made for the sums of all gradients"));
        self.run_legs("round_to_wire", &legs);
        self.set_out()?;
        chunks.iter().try_for_each(|chunk| self.sum_rounded(chunk))
    }

    /// Waits, on the GPU, for all sums that were begun.
    pub fn complete_sums(&mut self) -> Result<(), NcclError> {
        self.arrive("waiting for sums")?;
        let legs = self.staging.as_mut().map(Staging::alight).unwrap_or_default();
        self.run_legs("read_from_wire", &legs);
        self.under_way = false;
        Ok(self.cuda().known_failure()?)
    }

    /// The numbers of all processes one after another, of which each has the length given for it.
    pub fn gather(&mut self, here: &[f64], lengths: &[usize]) -> Result<Vec<f64>, NcclError> {
        assert_eq!((lengths.len(), here.len()), (self.ranks, lengths[self.rank]), "one length for each process");
        let cuda = self.cuda();
        cuda.known_failure()?;
        let most = lengths.iter().copied().max().unwrap_or(0);
        if most == 0 {
            return Ok(Vec::new());
        }
        let (from, to) = (cuda.scratch(most * 8), cuda.scratch(self.ranks * most * 8));
        // Where there was no memory the addresses lead nowhere.
        cuda.known_failure()?;
        cuda.upload(from.address(), here);
        self.set_out()?;
        let gather = Operation::Gather { from: from.address(), to: to.address(), bytes: most * 8 };
        self.queue("gathering numbers", &[gather])?;
        self.arrive("waiting for numbers")?;
        let all: Vec<f64> = cuda.download(to.address(), self.ranks * most);
        // Zeros stand for what a failed device should have given, and anything for what was given up on its way.
        cuda.known_failure()?;
        self.link.check_open()?;
        let of_rank = |(rank, &length): (usize, &usize)| all[rank * most..rank * most + length].to_vec();
        Ok(lengths.iter().enumerate().flat_map(of_rank).collect())
    }

    /// Puts the shares of all processes together. `part(rank, length)` says which elements of a tensor of some length are the
    /// share of a process: neighbours, each once.
    pub fn put_together(
        &mut self,
        shares: &[Tensor],
        to: Put<'_>,
        part: &dyn Fn(usize, usize) -> Range<usize>,
    ) -> Result<(), NcclError> {
        self.cuda().known_failure()?;
        let (to, wholes) = match to {
            Put::Everyone(wholes) => (Recipients::Everyone, Some(places(wholes))),
            Put::First(wholes) => (Recipients::First, Some(places(wholes))),
            Put::Another => (Recipients::First, None),
        };
        let here = shares.iter().map(|share| (share.cuda_address(), share.len())).collect();
        let plan = PutPlan::new((self.rank, self.ranks), to, here, wholes.as_deref(), part, PUT_AT_ONCE);
        let memory = self.cuda().allocate(plan.floats(), DType::F32);
        // Where there was no memory the addresses lead nowhere.
        self.cuda().known_failure()?;
        for chunk in plan.chunks(memory.address()) {
            self.run_legs("copy_numbers", &plan.legs_in(&chunk));
            self.set_out()?;
            self.queue("putting shares together", &plan.operations(&chunk))?;
            self.arrive("waiting for shares")?;
            self.run_legs("copy_numbers", &plan.legs_out(&chunk));
        }
        if to == Recipients::First {
            // They are written to a checkpoint next, so it has to be known that they have come.
            self.await_road("putting shares together", &|| false)?;
            self.link.check_open()?;
        }
        Ok(self.cuda().known_failure()?)
    }

    /// Adds up this process's share of a chunk of rounded numbers, and gives all the sums of all.
    fn sum_rounded(&self, chunk: &RoundedChunk) -> Result<(), NcclError> {
        self.queue("sending gradients", &chunk.scatter(self.ranks))?;
        let arguments = arguments![chunk.parts, self.ranks as i32, chunk.share as i64, chunk.sum];
        let blocks = (chunk.share.div_ceil(256) as u32, 1, 1);
        self.cuda().launch_on(self.road.stream, ("wire", "add_on_wire"), blocks, (256, 1), 0, &arguments);
        self.queue("gathering sums", &chunk.gather())
    }

    /// Copies numbers, or rounds them, or reads rounded ones, on the stream that computes.
    fn run_legs(&self, kernel: &'static str, legs: &[Leg]) {
        let cuda = self.cuda();
        let blocks =
            |(i, leg): (usize, &Leg)| (0..leg.count.div_ceil(CHUNK)).map(move |chunk| [i as i32, chunk as i32]);
        let places: Vec<[i32; 2]> = legs.iter().enumerate().flat_map(blocks).collect();
        if places.is_empty() {
            return;
        }
        let table: Vec<[u64; 3]> = legs.iter().map(|leg| [leg.from, leg.to, leg.count as u64]).collect();
        let (table, blocks): (CudaBuffer, CudaBuffer) = (cuda.uploaded(&table), cuda.uploaded(&places));
        let arguments = arguments![table.address(), blocks.address()];
        cuda.launch(("wire", kernel), (places.len() as u32, 1, 1), (256, 1), 0, &arguments);
    }

    fn queue(&self, what: &'static str, operations: &[Operation]) -> Result<(), NcclError> {
        self.cuda().bind();
        self.link.queue(what, operations, self.road.stream, self.limit, &|| false)
    }

    /// What travels from now on waits for what has been queued to compute so far.
    fn set_out(&self) -> Result<(), NcclError> {
        let (cuda, road) = (self.cuda(), &self.road);
        cuda.bind();
        order(cuda.gpu.stream, road.computed, road.stream).map_err(|e| driver_error("before summing", &e))
    }

    /// What is computed from now on waits for what has been sent so far. A profile shows for how long.
    fn arrive(&self, what: &'static str) -> Result<(), NcclError> {
        let (cuda, road) = (self.cuda(), &self.road);
        cuda.bind();
        let wait = || order(road.stream, road.travelled, cuda.gpu.stream);
        cuda.timed("nccl", || what.to_owned(), wait).map_err(|e| driver_error(what, &e))
    }

    /// Whether sums were begun and not completed.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way
    }
}

/// Lets a stream wait for what another one has queued so far. An event may be used again at once: a wait is for what it
/// stood for when the wait was queued.
fn order(first: sys::CUstream, event: sys::CUevent, then: sys::CUstream) -> Result<(), result::DriverError> {
    // SAFETY: streams and events of our own, of one context.
    unsafe {
        result::event::record(event, first)?;
        result::stream::wait_event(then, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
    }
}
