//! The numbers of ONNX's protobuf schema that are used here, by message.

/// `ModelProto`.
pub(crate) mod model {
    pub(crate) const IR_VERSION: u32 = 1;
    pub(crate) const PRODUCER_NAME: u32 = 2;
    pub(crate) const PRODUCER_VERSION: u32 = 3;
    pub(crate) const GRAPH: u32 = 7;
    pub(crate) const OPSET_IMPORT: u32 = 8;
    pub(crate) const METADATA_PROPS: u32 = 14;
}

/// `OperatorSetIdProto`.
pub(crate) mod opset {
    pub(crate) const DOMAIN: u32 = 1;
    pub(crate) const VERSION: u32 = 2;
}

/// `StringStringEntryProto`.
pub(crate) mod entry {
    pub(crate) const KEY: u32 = 1;
    pub(crate) const VALUE: u32 = 2;
}

/// `GraphProto`.
pub(crate) mod graph {
    pub(crate) const NODE: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const INITIALIZER: u32 = 5;
    pub(crate) const INPUT: u32 = 11;
    pub(crate) const OUTPUT: u32 = 12;
    pub(crate) const SPARSE_INITIALIZER: u32 = 15;
}

/// `NodeProto`.
pub(crate) mod node {
    pub(crate) const INPUT: u32 = 1;
    pub(crate) const OUTPUT: u32 = 2;
    pub(crate) const NAME: u32 = 3;
    pub(crate) const OP_TYPE: u32 = 4;
    pub(crate) const ATTRIBUTE: u32 = 5;
    pub(crate) const DOMAIN: u32 = 7;
}

/// `AttributeProto`, and its `AttributeType`.
pub(crate) mod attribute {
    pub(crate) const NAME: u32 = 1;
    pub(crate) const F: u32 = 2;
    pub(crate) const I: u32 = 3;
    pub(crate) const S: u32 = 4;
    pub(crate) const T: u32 = 5;
    pub(crate) const INTS: u32 = 8;
    pub(crate) const TYPE: u32 = 20;

    pub(crate) const TYPE_FLOAT: u64 = 1;
    pub(crate) const TYPE_INT: u64 = 2;
    pub(crate) const TYPE_STRING: u64 = 3;
    pub(crate) const TYPE_TENSOR: u64 = 4;
    pub(crate) const TYPE_INTS: u64 = 7;
}

/// `TensorProto`, and its `DataType` and `DataLocation`.
pub(crate) mod tensor {
    pub(crate) const DIMS: u32 = 1;
    pub(crate) const DATA_TYPE: u32 = 2;
    pub(crate) const SEGMENT: u32 = 3;
    pub(crate) const FLOAT_DATA: u32 = 4;
    pub(crate) const INT64_DATA: u32 = 7;
    pub(crate) const NAME: u32 = 8;
    pub(crate) const RAW_DATA: u32 = 9;
    pub(crate) const EXTERNAL_DATA: u32 = 13;
    pub(crate) const DATA_LOCATION: u32 = 14;

    pub(crate) const TYPE_FLOAT: u64 = 1;
    pub(crate) const TYPE_INT64: u64 = 7;
    pub(crate) const LOCATION_DEFAULT: u64 = 0;
}

/// `ValueInfoProto`.
pub(crate) mod value_info {
    pub(crate) const NAME: u32 = 1;
    pub(crate) const TYPE: u32 = 2;
}

/// `TypeProto` and its `Tensor`.
pub(crate) mod value_type {
    pub(crate) const TENSOR: u32 = 1;
    pub(crate) const ELEM_TYPE: u32 = 1;
    pub(crate) const SHAPE: u32 = 2;
}

/// `TensorShapeProto` and its `Dimension`.
pub(crate) mod shape {
    pub(crate) const DIM: u32 = 1;
    pub(crate) const DIM_VALUE: u32 = 1;
    pub(crate) const DIM_PARAM: u32 = 2;
}
