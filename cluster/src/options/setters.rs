//! The methods that replace fields of options.

/// Defines methods that replace a field of options: the name of the method, the field, its type.
macro_rules! setters {
    ($($name:ident: $field:ident $type:ty,)+) => {$(
        #[doc = concat!("Replaces [`", stringify!($field), "`](Self::", stringify!($field), ").")]
        #[must_use]
        pub fn $name(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    )+};
}

pub(crate) use setters;
