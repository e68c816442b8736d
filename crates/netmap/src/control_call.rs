//! `ioctl` on a device: reads the program's arguments, checks them in the documented order, and writes the reply back.
//!
//! - `current` and `option_list`: NIOCCTRL. `legacy`: NIOCREGIF and NIOCGINFO, of today and of 2012.
//! - `requests`: the requests of both. `external_memory`: identity of the program's memory.

mod current;
mod external_memory;
mod legacy;
mod option_list;
mod requests;

#[cfg(test)]
mod tests;

use rustix::io::Errno;

use crate::abi::{
    ConfigRequest, NIOCCONFIG, NIOCCTRL, NIOCGINFO, NIOCGINFO_2012, NIOCREGIF, NIOCREGIF_2012, NIOCRXSYNC,
    NIOCTXSYNC,
};
use crate::descriptor::NetmapFile;
use crate::user_memory::read;

/// Carries out `ioctl(device, request, argument)`. Only the lower 32 bits of `request` count: the upper bits may be a
/// sign extension.
///
/// # Errors
/// The errno value for the program: EINVAL for a null argument or malformed request, EFAULT if the program's memory is
/// not accessible, EMSGSIZE for too long a list of options, EOPNOTSUPP for unknown requests, and the errors of the
/// request.
pub fn control(device: &dyn NetmapFile, request: u64, argument: usize) -> Result<(), Errno> {
    match request as u32 {
        NIOCTXSYNC => device.tx_sync(),
        NIOCRXSYNC => device.rx_sync(),
        NIOCCTRL | NIOCREGIF | NIOCGINFO | NIOCREGIF_2012 | NIOCGINFO_2012 | NIOCCONFIG if argument == 0 => {
            Err(Errno::INVAL)
        }
        NIOCCTRL => current::control(device, argument),
        NIOCREGIF => legacy::bind_or_command(device, argument),
        NIOCGINFO => legacy::information(device, argument),
        NIOCREGIF_2012 => legacy::bind_of_2012(device, argument),
        NIOCGINFO_2012 => legacy::information_of_2012(device, argument),
        NIOCCONFIG => {
            let _for_no_module: ConfigRequest = read(argument)?;
            Err(Errno::INVAL)
        }
        _ => Err(Errno::OPNOTSUPP),
    }
}
