//! Why the driver refuses to instantiate or to update.

use std::fmt;

/// Declares an enumeration of the driver's reasons, with the text of each.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($reason:ident: $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = $text] $reason,)+
            /// A reason that this library does not know.
            Other(u32),
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($name::$reason => f.write_str($text),)+
                    $name::Other(reason) => write!(f, "reason {reason}"),
                }
            }
        }
    };
}

reasons! {
    /// Why a graph cannot be instantiated.
    InstantiateFailure {
        Driver: "the driver failed",
        InvalidStructure: "its structure is invalid, as with a cycle",
        OperationNotSupported: "an operation is not supported here, or with these options",
        SeveralContexts: "its nodes belong to several contexts",
        ConditionUnused: "a condition is used by no conditional node",
        HasExecutable: "a graph with conditional or allocation nodes has one executable at a time, \
            and no copy if it has conditional nodes: drop that first",
    }
}

reasons! {
    /// Why an executable cannot be updated from a definition.
    UpdateFailure {
        Driver: "the driver failed",
        TopologyChanged: "the nodes or edges differ",
        KindChanged: "a node is of another kind",
        FunctionChanged: "a kernel's function changed",
        ParametersChanged: "a parameter changed that may not change",
        NotSupported: "a node's change is not supported",
        FunctionNotSupported: "a kernel's function changed in a way that is not supported",
        AttributesChanged: "a launch attribute changed that may not change",
    }
}
