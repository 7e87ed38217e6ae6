//! What a GPU can do to the pixels of a view while they wait for their step.

/// What is done to one RGB view, in the order of the fields. Every operation rounds to bytes before the next begins. The
/// default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ViewEdit {
    /// Changes of colour, one after the other; contrast at most once.
    pub colors: Option<[ColorStep; 4]>,
    /// Whether every channel becomes the luma.
    pub grayscale: bool,
    /// Blur: three passes of this box along the rows, then three along the columns.
    pub blur: Option<BoxBlur>,
    /// Values from here on are inverted.
    pub solarize_from: Option<u8>,
}

impl ViewEdit {
    /// How often it changes the contrast.
    pub(crate) fn contrasts(&self) -> usize {
        self.colors.iter().flatten().filter(|step| matches!(step, ColorStep::Contrast(_))).count()
    }
}

/// A change of colour. A factor of 1 changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ColorStep {
    /// Scales all values.
    Brightness(f32),
    /// Scales the distance to the view's mean luma.
    Contrast(f32),
    /// Scales the distance of every pixel to its own luma.
    Saturation(f32),
    /// Turns the hue of an 8-bit HSV by this many steps of 1/255, wrapping around.
    Hue(u8),
}

/// A box with soft ends, in units of 2^-24; beyond an edge its last pixel is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxBlur {
    /// How far the inner pixels reach.
    pub radius: u32,
    /// Weight of each of them.
    pub inner: u32,
    /// Weight of the two pixels just outside.
    pub outer: u32,
}
