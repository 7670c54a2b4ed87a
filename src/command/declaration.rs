//! Declarations of operations: one has the type, what it cannot do without, and a line for each
//! option. The constructor, the methods that set options, the fields of the command, and what reads
//! all of this from documents follow from it.

/// Declares an operation, or a part of one.
///
/// ```text
/// operation! {
///     /// A search.
///     #[derive(Clone, Debug)]
///     pub struct Find as FindOptions { cursor_type: CursorType }
///
///     arguments {
///         /// Looks for the documents that a filter matches.
///         new(filter: document = "filter");
///     }
///
///     options {
///         /// Sets the order.
///         sort: document = "sort";
///         /// Sets which fields there are.
///         projection: document = "projection" as "fields";
///         /// Sets the kind of the cursor.
///         cursor_type: CursorType = "cursorType" in cursor_type;
///     }
/// }
/// ```
///
/// The fields of the struct begin with their defaults; arguments are further fields. An option has
/// a method, a kind (those of [`taken!`], or a type) and a name. It is a field of the command of
/// that name, or of the one behind `as`, or it is a field of the struct, the one behind `in`.
///
/// Without `arguments`, the struct and its constructor stand beside the declaration.
///
/// The name behind `as` is that of a struct with the options alone, as configurations have them;
/// with it, the operation's [`Action`](crate::action::Action) has the methods, too.
macro_rules! operation {
    (
        $(#[$meta:meta])*
        pub struct $type:ident $(as $options_type:ident)? {
            $($state:ident: $state_type:ty),* $(,)?
        }

        arguments {
            $(#[$doc:meta])*
            new($($argument:ident: $kind:ident = $name:literal),* $(,)?);
        }

        options $options:tt
    ) => {
        $(#[$meta])*
        pub struct $type {
            $($argument: stored!($kind),)*
            $($state: $state_type,)*
            options: $crate::command::fields::Fields,
        }

        impl $type {
            $(#[$doc])*
            pub fn new($($argument: taken!($kind)),*) -> Self {
                Self {
                    $($argument: store!($kind $argument),)*
                    $($state: Default::default(),)*
                    options: Default::default(),
                }
            }
        }

        from_filter!($type $($kind)*);

        impl $crate::command::arguments::FromArguments for $type {
            fn required(
                _arguments: &mut $crate::command::arguments::Arguments,
            ) -> Result<Self, $crate::error::ArgumentError> {
                $(let $argument: read!($kind) = _arguments.required($name)?;)*
                Ok(Self::new($(given!($kind $argument)),*))
            }
        }

        operation! { pub struct $type $(as $options_type)?; options $options }
        from_document!($type);
    };
    (
        pub struct $type:ident as $options_type:ident;

        options {
            $(
                $(#[$doc:meta])*
                $option:ident: $kind:ident = $name:literal
                    $(as $wire:literal)?
                    $(in $place:ident $(.$within:ident)?)?;
            )*
        }
    ) => {
        impl $type {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $option(mut self, value: taken!($kind)) -> Self {
                    let value = store!($kind value);
                    set!(self value [$name] [$($wire)?] [$($place $(.$within)?)?]);
                    self
                }
            )*

            /// Sets the options that are set there.
            #[must_use]
            pub fn with_options(mut self, options: impl Into<Option<$options_type>>) -> Self {
                let options = options.into().unwrap_or_default();
                $(if let Some(value) = options.$option {
                    self = self.$option(value);
                })*
                self
            }
        }

        impl $crate::command::arguments::Options for $type {
            const OPTIONS: &'static [&'static str] = <$options_type>::OPTIONS;

            fn set(
                self,
                name: &str,
                value: bson::Bson,
            ) -> Result<Self, $crate::error::ArgumentError> {
                Ok(self.with_options(<$options_type>::default().set(name, value)?))
            }
        }

        impl<H, V> $crate::command::action::Action<$type, H, V> {
            $(
                $(#[$doc])*
                pub fn $option(self, value: taken!($kind)) -> Self {
                    self.with(|operation| operation.$option(value))
                }
            )*

            /// Sets the options that are set there.
            pub fn with_options(self, options: impl Into<Option<$options_type>>) -> Self {
                self.with(|operation| operation.with_options(options))
            }
        }

        #[doc = concat!("The options of [`", stringify!($type), "`], as configurations have them.")]
        ///
        /// It is read and written with what specifications and servers call them, such as
        /// `maxTimeMS`; another name is refused.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct $options_type {
            $(
                $(#[$doc])*
                pub $option: Option<field!($kind)>,
            )*
        }

        impl $options_type {
            /// Starts with no option set.
            pub fn builder() -> $crate::command::arguments::OptionsBuilder<Self> {
                Default::default()
            }
        }

        impl $crate::command::arguments::OptionsBuilder<$options_type> {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $option(mut self, value: impl Into<Option<field!($kind)>>) -> Self {
                    self.0.$option = value.into();
                    self
                }
            )*
        }

        impl $crate::command::arguments::Options for $options_type {
            const OPTIONS: &'static [&'static str] = &[$($name),*];

            fn set(
                mut self,
                name: &str,
                value: bson::Bson,
            ) -> Result<Self, $crate::error::ArgumentError> {
                match name {
                    $($name => {
                        let value: read!($kind) = $crate::command::arguments::read(name, value)?;
                        self.$option = Some(value.into());
                    })*
                    _ => return Err($crate::error::ArgumentError::UnknownArgument {
                        name: name.to_owned(),
                        known: Self::OPTIONS.to_vec(),
                    }),
                }
                Ok(self)
            }
        }

        impl $crate::command::arguments::FromArguments for $options_type {
            fn required(
                _: &mut $crate::command::arguments::Arguments,
            ) -> Result<Self, $crate::error::ArgumentError> {
                Ok(Self::default())
            }
        }

        from_document!($options_type);

        impl serde::Serialize for $options_type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut options = serializer.serialize_map(None)?;
                $(if let Some(value) = &self.$option {
                    options.serialize_entry($name, &written!($kind value))?;
                })*
                options.end()
            }
        }
    };
    (
        pub struct $type:ident;

        options {
            $(
                $(#[$doc:meta])*
                $option:ident: $kind:ident = $name:literal
                    $(as $wire:literal)?
                    $(in $place:ident $(.$within:ident)?)?;
            )*
        }
    ) => {
        impl $type {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $option(mut self, value: taken!($kind)) -> Self {
                    let value = store!($kind value);
                    set!(self value [$name] [$($wire)?] [$($place $(.$within)?)?]);
                    self
                }
            )*

            /// Sets options by their names, as a configuration may have them: those of
            /// specifications and servers, such as `maxTimeMS`.
            ///
            /// # Errors
            ///
            /// Fails if there is no option of a name, and if a value is of another type.
            pub fn with_options(
                self,
                options: bson::Document,
            ) -> Result<Self, $crate::error::ArgumentError> {
                $crate::command::arguments::Options::set_all(self, options)
            }
        }

        impl $crate::command::arguments::Options for $type {
            const OPTIONS: &'static [&'static str] = &[$($name),*];

            fn set(
                self,
                name: &str,
                _value: bson::Bson,
            ) -> Result<Self, $crate::error::ArgumentError> {
                match name {
                    $($name => {
                        let value: read!($kind) = $crate::command::arguments::read(name, _value)?;
                        Ok(self.$option(value))
                    })*
                    _ => Err($crate::error::ArgumentError::UnknownArgument {
                        name: name.to_owned(),
                        known: Self::OPTIONS.to_vec(),
                    }),
                }
            }
        }
    };
}

/// Lets a type be read from a document of its arguments.
macro_rules! from_document {
    ($type:ty) => {
        impl $type {
            /// Reads it from a document with all its arguments by name: those that it cannot do
            /// without, and options. `Deserialize` does the same for other formats.
            ///
            /// # Errors
            ///
            /// Fails if an argument is missing, unknown or of another type.
            pub fn from_document(
                arguments: bson::Document,
            ) -> Result<Self, $crate::error::ArgumentError> {
                let arguments = $crate::command::arguments::Arguments(arguments);
                $crate::command::arguments::FromArguments::from_arguments(arguments)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::command::arguments::deserialize(deserializer, Self::from_document)
            }
        }
    };
}

/// The type that a method takes for a kind of option.
macro_rules! taken {
    (int) => { i32 };
    (long) => { i64 };
    (millis) => { std::time::Duration };
    (text) => { impl Into<String> };
    (code) => { impl Into<String> };
    (document) => { impl $crate::value::IntoDocument };
    (collation) => { impl $crate::value::IntoDocument };
    (documents) => { impl IntoIterator<Item = impl $crate::value::IntoDocument> };
    (serialized) => { impl serde::Serialize };
    (value) => { impl Into<bson::Bson> };
    (hint) => { impl Into<$crate::value::Hint> };
    (modifications) => { impl Into<$crate::value::Modifications> };
    ($other:ident) => { $other };
}

/// The type that an argument is kept as.
macro_rules! stored {
    (text) => {
        String
    };
    (code) => {
        String
    };
    (document) => {
        $crate::value::Value
    };
    (documents) => {
        $crate::value::Value
    };
    (serialized) => {
        $crate::value::Value
    };
    (modifications) => {
        $crate::value::Value
    };
    ($other:ident) => {
        $other
    };
}

/// The type that an option has among options alone.
macro_rules! field {
    (int) => {
        i32
    };
    (long) => {
        i64
    };
    (millis) => {
        std::time::Duration
    };
    (text) => {
        String
    };
    (code) => {
        String
    };
    (document) => {
        bson::Document
    };
    (collation) => {
        $crate::collation::Collation
    };
    (documents) => {
        Vec<bson::Document>
    };
    (value) => {
        bson::Bson
    };
    (hint) => {
        $crate::value::Hint
    };
    ($other:ident) => {
        $other
    };
}

/// Makes of what a method takes what is kept.
macro_rules! store {
    (text $value:ident) => {
        Into::<String>::into($value)
    };
    (code $value:ident) => {
        Into::<String>::into($value)
    };
    (document $value:ident) => {
        $crate::value::Value::document($value)
    };
    (collation $value:ident) => {
        $crate::value::Value::document($value)
    };
    (documents $value:ident) => {
        $crate::value::Value::from($crate::value::array($value))
    };
    (serialized $value:ident) => {
        $crate::command::models::serialized(&$value)
    };
    (value $value:ident) => {
        $crate::value::Value::of($value)
    };
    (hint $value:ident) => {
        Into::<$crate::value::Hint>::into($value).into_value()
    };
    (modifications $value:ident) => {
        Into::<$crate::value::Modifications>::into($value).0
    };
    ($other:ident $value:ident) => {
        $value
    };
}

/// The type that an argument is read as from a document.
macro_rules! read {
    (int) => { i32 };
    (long) => { i64 };
    (millis) => { std::time::Duration };
    (text) => { String };
    (code) => { $crate::command::arguments::Code };
    (document) => { bson::Document };
    (collation) => { $crate::collation::Collation };
    (documents) => { Vec<bson::Document> };
    (serialized) => { bson::Document };
    (value) => { bson::Bson };
    (hint) => { $crate::value::Hint };
    (modifications) => { $crate::value::Modifications };
    ($other:ident) => { $other };
}

/// The form in which an option is written.
macro_rules! written {
    (millis $value:ident) => {
        $crate::value::whole_millis(*$value)
    };
    ($kind:ident $value:ident) => {
        $value
    };
}

/// Hands what was read to a constructor.
macro_rules! given {
    ($kind:ident $value:ident) => {
        $value
    };
}

/// Sets an option: a field of the struct, or one of the command.
macro_rules! set {
    ($self:ident $value:ident [$name:literal] [] []) => {
        $self.options.set(bson::raw::cstr!($name), $value)
    };
    ($self:ident $value:ident [$name:literal] [$wire:literal] []) => {
        $self.options.set(bson::raw::cstr!($wire), $value)
    };
    ($self:ident $value:ident [$name:literal] [] [$($place:tt)+]) => {
        $self.$($place)+ = $value.into()
    };
}

/// Lets an operation that takes a filter and nothing else be made of that.
macro_rules! from_filter {
    ($type:ident document) => {
        impl<D: $crate::value::IntoDocument> From<D> for $type {
            fn from(document: D) -> Self {
                Self::new(document)
            }
        }
    };
    ($type:ident $($kind:ident)*) => {};
}
