//! Why the driver refuses to instantiate or to update.

use std::fmt;

/// Declares an enumeration of the driver's reasons, with the text of each.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $reason:ident: $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$each])* $reason,)+
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
        /// The driver failed for a reason of its own.
        Driver: "the driver failed",
        /// The structure is not that of a graph, as with a cycle.
        InvalidStructure: "its structure is invalid",
        /// A node's operation is not supported in this place, or with these options.
        OperationNotSupported: "an operation is not supported here",
        /// The nodes belong to several contexts.
        SeveralContexts: "its nodes belong to several contexts",
        /// No conditional node uses a condition.
        ConditionUnused: "a condition is used by no conditional node",
        /// A graph with conditional or allocation nodes has one executable at a time, and this one
        /// may have one.
        HasExecutable: "a graph with conditional or allocation nodes has one executable at a time: drop that first",
    }
}

reasons! {
    /// Why an executable cannot be updated from a definition.
    UpdateFailure {
        /// The driver failed for a reason of its own.
        Driver: "the driver failed",
        /// The nodes or edges differ.
        TopologyChanged: "the nodes or edges differ",
        /// A node is of another kind.
        KindChanged: "a node is of another kind",
        /// A kernel's function changed where it may not.
        FunctionChanged: "a kernel's function changed",
        /// A parameter changed that may not change.
        ParametersChanged: "a parameter changed that may not change",
        /// Something about a node cannot be updated.
        NotSupported: "a node's change is not supported",
        /// A kernel's function changed in a way that cannot be updated.
        FunctionNotSupported: "a kernel's function changed in a way that is not supported",
        /// A launch attribute changed that may not change.
        AttributesChanged: "a launch attribute changed that may not change",
    }
}
