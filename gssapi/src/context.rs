//! A security context of the system's library.

use libgssapi::context::{ClientCtx, CtxFlags, SecurityContext as _};
use libgssapi::credential::Cred;
use libgssapi::oid::GSS_MECH_KRB5;
use sdam_core::auth::{GssapiContext, GssapiError, GssapiService, GssapiStep, GssapiToken};

use crate::problem::error;
use crate::service_name;

pub(crate) struct SystemContext {
    context: ClientCtx,
    service: String,
}

impl SystemContext {
    /// Prepares a context in which the service authenticates itself, too.
    pub(crate) fn new(credential: Cred, service: &GssapiService) -> Result<Self, GssapiError> {
        let flags = CtxFlags::GSS_C_MUTUAL_FLAG | CtxFlags::GSS_C_INTEG_FLAG;
        let target = service_name(service)?;
        let context = ClientCtx::new(Some(credential), target, flags, Some(GSS_MECH_KRB5));
        Ok(Self { context, service: service.to_string() })
    }
}

impl GssapiContext for SystemContext {
    fn step(&mut self, token: Option<&[u8]>) -> Result<GssapiStep, GssapiError> {
        let service = &self.service;
        let next = self.context.step(token, None).map_err(|failure| {
            error(failure, || match token {
                None => format!("Kerberos gives no ticket for {service}"),
                Some(_) => format!("the server does not prove that it is {service}"),
            })
        })?;
        let next = next.map(|token| GssapiToken::new(&*token));
        match (self.context.is_complete(), next) {
            (true, next) => Ok(GssapiStep::Complete(next)),
            (false, next) => Ok(GssapiStep::Continue(next.unwrap_or_else(|| GssapiToken::new([])))),
        }
    }

    fn unwrap(&mut self, message: &[u8]) -> Result<GssapiToken, GssapiError> {
        let content = self.context.unwrap(message).map_err(|failure| {
            error(failure, || format!("a message does not come from {}", self.service))
        })?;
        Ok(GssapiToken::new(&*content))
    }

    fn wrap(&mut self, content: &[u8]) -> Result<GssapiToken, GssapiError> {
        let message = self.context.wrap(false, content).map_err(|failure| {
            error(failure, || format!("no message for {} can be made", self.service))
        })?;
        Ok(GssapiToken::new(&*message))
    }
}
