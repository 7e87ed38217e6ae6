//! GPUs of several processes: what is large goes from one to another through NCCL, while the processes meet elsewhere.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tensor::{Communicator, Device, GiveUp, NcclError, ParamSet, Put, Tensor};

use super::{Carrier, PeerError, Recipient, Share, SumMemory, Sums, Wire, early};

pub use tensor::{ID_BYTES, new_nccl_id as new_id};

/// Gradients that leave together while others are still computed: 32 MiB. A sum has a cost of its own, however small it is, and
/// links are as fast as they can be from a few megabytes on.
pub const LEAST_TO_BEGIN: usize = 8 << 20;

/// The GPU of this process among those of all.
#[derive(Debug)]
pub struct NcclCarrier {
    communicator: Communicator,
    /// Which tensors of the step under way are on their way already.
    begun: Vec<Range<usize>>,
}

/// What NCCL's failures are for processes that train together.
fn peer_error(error: NcclError) -> PeerError {
    match error {
        NcclError::Device(error) => PeerError::Device(error),
        other => PeerError::Lost(other.to_string()),
    }
}

impl NcclCarrier {
    /// Joins the others, of which all come for it: the process `rank` of `ranks`, with the id that [`new_id`] has given one of
    /// them. Nothing waits for longer than `limit`, where there is one, and this not any more once it should stop: where somebody is
    /// known to be gone.
    pub fn start(
        device: &Device,
        rank: usize,
        ranks: usize,
        id: &[u8; ID_BYTES],
        limit: Option<Duration>,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Self, NcclError> {
        let communicator = Communicator::join(device, (rank, ranks), id, limit, should_stop)?;
        Ok(Self { communicator, begun: Vec::new() })
    }

    /// What [`Carrier::give_up`] does, as a value.
    pub fn ending(&self) -> GiveUp {
        self.communicator.give_up()
    }

    /// Queues the sums of some ids.
    fn send_off(&mut self, tensors: &mut ParamSet, which: &Range<usize>, wire: Wire) -> Result<(), PeerError> {
        let tensors = &mut tensors.tensors_mut()[which.clone()];
        self.communicator.begin_sums(tensors, wire == Wire::Bf16).map_err(peer_error)
    }
}

fn lengths(tensors: &ParamSet) -> Vec<usize> {
    tensors.iter().map(Tensor::len).collect()
}

impl Sums for NcclCarrier {
    fn least_to_begin(&self) -> Option<usize> {
        // One process alone has nobody to send anything to.
        (self.communicator.ranks() > 1).then_some(LEAST_TO_BEGIN)
    }

    fn memory(&self, lengths: &[usize], wire: Wire) -> SumMemory {
        let staging = match wire {
            Wire::Exact => 0,
            Wire::Bf16 => Communicator::staging_bytes(lengths, self.communicator.ranks()),
        };
        SumMemory { staging, own: self.communicator.own_bytes() }
    }

    fn prepare(&mut self, tensors: &ParamSet, wire: Wire) -> Result<(), PeerError> {
        match wire {
            Wire::Exact => Ok(()),
            Wire::Bf16 => self.communicator.prepare_rounded_sums(&lengths(tensors)).map_err(peer_error),
        }
    }

    fn begin_sum(&mut self, tensors: &mut ParamSet, which: Range<usize>, wire: Wire) -> Result<(), PeerError> {
        early::check_new(&self.begun, &which)?;
        self.prepare(tensors, wire)?;
        self.send_off(tensors, &which, wire)?;
        self.begun.push(which);
        Ok(())
    }

    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.prepare(tensors, wire)?;
        for which in early::rest(&self.begun, tensors.len()) {
            self.send_off(tensors, &which, wire)?;
        }
        self.communicator.complete_sums().map_err(peer_error)?;
        self.begun.clear();
        Ok(())
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        let of = self.communicator.ranks();
        let part = |number: usize, length: usize| Share { number, of }.of_elements(length);
        let to = match to {
            Recipient::Everyone(whole) => Put::Everyone(whole.tensors_mut()),
            Recipient::First(whole) => Put::First(whole.tensors_mut()),
            Recipient::Another => Put::Another,
        };
        self.communicator.put_together(shares.tensors(), to, &part).map_err(peer_error)
    }
}

impl Carrier for NcclCarrier {
    fn gather(&mut self, here: &[f64], lengths: &[usize]) -> Result<Vec<f64>, PeerError> {
        self.communicator.gather(here, lengths).map_err(peer_error)
    }

    fn give_up(&self) -> Arc<dyn Fn() + Send + Sync> {
        let ending = self.ending();
        Arc::new(move || ending.give_up())
    }
}
