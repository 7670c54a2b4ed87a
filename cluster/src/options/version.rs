//! The server version that members imitate, and what each version has.

/// The server version that the members imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum ServerVersion {
    /// Legacy hello only, and nothing to wait for.
    V4_2,
    /// `hello`, awaitable and streaming, but no `helloOk`.
    V4_4,
    /// The first with `helloOk`.
    V5_0,
    /// Like 5.0 with a newer wire version.
    #[default]
    V6_0,
    /// Like 6.0 with a newer wire version.
    V7_0,
    /// Like 7.0 with a newer wire version; it still answers legacy hello.
    V8_0,
    /// The first with `rawData`.
    V8_2,
    /// Like 8.2 with a newer wire version.
    V9_0,
}

impl ServerVersion {
    /// Every version, in order.
    pub const ALL: [Self; 8] = [
        Self::V4_2,
        Self::V4_4,
        Self::V5_0,
        Self::V6_0,
        Self::V7_0,
        Self::V8_0,
        Self::V8_2,
        Self::V9_0,
    ];

    /// Returns the version after this one, or the one before it; the other one where there is none.
    #[must_use]
    pub const fn neighbour(self, newer: bool) -> Self {
        match (self, newer) {
            (Self::V4_2, _) | (Self::V5_0, false) => Self::V4_4,
            (Self::V4_4, false) => Self::V4_2,
            (Self::V4_4, true) | (Self::V6_0, false) => Self::V5_0,
            (Self::V5_0, true) | (Self::V7_0, false) => Self::V6_0,
            (Self::V6_0, true) | (Self::V8_0, false) => Self::V7_0,
            (Self::V7_0, true) | (Self::V8_2, false) => Self::V8_0,
            (Self::V8_0, true) | (Self::V9_0, _) => Self::V8_2,
            (Self::V8_2, true) => Self::V9_0,
        }
    }

    /// Returns the `maxWireVersion` of this version.
    pub const fn max_wire_version(self) -> i32 {
        match self {
            Self::V4_2 => 8,
            Self::V4_4 => 9,
            Self::V5_0 => 13,
            Self::V6_0 => 17,
            Self::V7_0 => 21,
            Self::V8_0 => 25,
            Self::V8_2 => 27,
            Self::V9_0 => 29,
        }
    }

    /// Returns the major and the minor version number.
    pub const fn number(self) -> (i32, i32) {
        match self {
            Self::V4_2 => (4, 2),
            Self::V4_4 => (4, 4),
            Self::V5_0 => (5, 0),
            Self::V6_0 => (6, 0),
            Self::V7_0 => (7, 0),
            Self::V8_0 => (8, 0),
            Self::V8_2 => (8, 2),
            Self::V9_0 => (9, 0),
        }
    }

    /// Returns the number of the release, as servers write it.
    pub(crate) fn release(self) -> String {
        let (major, minor) = self.number();
        format!("{major}.{minor}.0")
    }

    /// Returns whether there is a `hello` that reports a `topologyVersion` and can wait.
    pub(crate) const fn has_awaitable_hello(self) -> bool {
        !matches!(self, Self::V4_2)
    }

    /// Returns whether legacy hello answers `helloOk`.
    pub(crate) const fn has_hello_ok(self) -> bool {
        !matches!(self, Self::V4_2 | Self::V4_4)
    }

    /// Returns whether a server that shuts down says so for a while before it ends.
    pub(crate) const fn has_quiesce_mode(self) -> bool {
        !matches!(self, Self::V4_2 | Self::V4_4)
    }

    /// Returns whether a write that does not say how many members must have it may wait for a
    /// majority of them.
    pub(crate) const fn has_majority_by_default(self) -> bool {
        !matches!(self, Self::V4_2 | Self::V4_4)
    }

    /// Returns whether a new member has neither vote nor priority until it has its data, and then
    /// receives both by a change of the configuration that the primary makes by itself.
    pub(crate) const fn has_newly_added(self) -> bool {
        !matches!(self, Self::V4_2 | Self::V4_4)
    }
}
