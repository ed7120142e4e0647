//! The echo of examples/echo in Rust, by the C interface, whose functions are declared here by hand
//! (bindgen should make all of them from the headers; that was not tried).
//!
//!     weft_rust                 serves, prints its address, and ends when its standard input does
//!     weft_rust ADDRESS TEXT    calls such a server, or that of examples/echo
//!
//! SayRequest and SayReply are both one text with the number 1, so the server answers with the
//! bytes that it got.
use std::ffi::{CStr, CString};
use std::io::{self, Read};
use std::os::raw::{c_char, c_int, c_void};
use std::{env, mem, process, ptr, slice};

/// The part of weft/c.h and weft/c_server.h that this needs.
mod c {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Bytes {
        pub data: *const c_void,
        pub size: usize,
    }

    #[repr(C)]
    pub struct CallOptions {
        pub struct_size: usize,
        pub timeout_us: u64,
        pub context: *mut c_void,
        pub priority: i32,
        pub wait_for_server: u32,
        pub no_retry: u32,
        pub reserved: u32,
    }

    pub enum Status {}
    pub enum Channel {}
    pub enum Message {}
    pub enum Service {}
    pub enum Server {}
    pub enum Call {}

    pub const UNARY: c_int = 1;
    pub const ONCE: c_int = 0;

    pub type Handler = extern "C" fn(*mut c_void, *mut Call);

    #[link(name = "weft_c")]
    extern "C" {
        pub fn weft_status_code(status: *const Status) -> c_int;
        pub fn weft_status_message(status: *const Status) -> *const c_char;
        pub fn weft_status_free(status: *mut Status);
        pub fn weft_channel_open(
            engine: *mut c_void,
            address: *const c_char,
            options: *const c_void,
            channel: *mut *mut Channel,
        ) -> *mut Status;
        pub fn weft_channel_free(channel: *mut Channel) -> *mut Status;
        pub fn weft_channel_method(
            channel: *mut Channel,
            service: *const c_char,
            method: *const c_char,
            kind: c_int,
            idempotency: c_int,
            number: *mut u32,
        ) -> *mut Status;
        pub fn weft_message_new() -> *mut Message;
        pub fn weft_message_bytes(message: *const Message) -> Bytes;
        pub fn weft_message_free(message: *mut Message);
        pub fn weft_call(
            channel: *mut Channel,
            method: u32,
            request: Bytes,
            options: *const CallOptions,
            reply: *mut Message,
        ) -> *mut Status;
        pub fn weft_service_new(name: *const c_char) -> *mut Service;
        pub fn weft_service_free(service: *mut Service);
        pub fn weft_service_add_method(
            service: *mut Service,
            name: *const c_char,
            kind: c_int,
            idempotency: c_int,
            handler: Handler,
            arg: *mut c_void,
        ) -> *mut Status;
        pub fn weft_server_new(
            engine: *mut c_void,
            options: *const c_void,
            server: *mut *mut Server,
        ) -> *mut Status;
        pub fn weft_server_free(server: *mut Server) -> *mut Status;
        pub fn weft_server_add_service(server: *mut Server, service: *mut Service) -> *mut Status;
        pub fn weft_server_listen(server: *mut Server, address: *const c_char) -> *mut Status;
        pub fn weft_server_address(server: *const Server) -> *const c_char;
        pub fn weft_server_call_request(call: *const Call) -> Bytes;
        pub fn weft_server_call_finish(call: *mut Call, status: *mut Status, reply: Bytes);
    }
}

/// Takes a status: null, or an error with its code and its words.
fn check(status: *mut c::Status) -> Result<(), String> {
    if status.is_null() {
        return Ok(());
    }
    unsafe {
        let words = CStr::from_ptr(c::weft_status_message(status)).to_string_lossy();
        let error = format!("{}: {}", c::weft_status_code(status), words);
        c::weft_status_free(status);
        Err(error)
    }
}

fn text(value: &str) -> Result<CString, String> {
    CString::new(value).map_err(|error| error.to_string())
}

/// Good as long as `data` is.
fn bytes_of(data: &[u8]) -> c::Bytes {
    c::Bytes {
        data: data.as_ptr() as *const c_void,
        size: data.len(),
    }
}

/// Good as long as what it lies in.
unsafe fn slice_of<'a>(bytes: c::Bytes) -> &'a [u8] {
    if bytes.size == 0 {
        return &[];
    }
    slice::from_raw_parts(bytes.data as *const u8, bytes.size)
}

struct Channel(*mut c::Channel);

impl Channel {
    fn open(address: &str) -> Result<Channel, String> {
        let mut channel = ptr::null_mut();
        let address = text(address)?;
        check(unsafe {
            c::weft_channel_open(ptr::null_mut(), address.as_ptr(), ptr::null(), &mut channel)
        })?;
        Ok(Channel(channel))
    }

    fn method(&self, service: &str, name: &str) -> Result<u32, String> {
        let (service, name) = (text(service)?, text(name)?);
        let mut number = 0;
        check(unsafe {
            c::weft_channel_method(
                self.0,
                service.as_ptr(),
                name.as_ptr(),
                c::UNARY,
                c::ONCE,
                &mut number,
            )
        })?;
        Ok(number)
    }

    /// Blocks until the call has ended.
    fn call(&self, method: u32, request: &[u8]) -> Result<Vec<u8>, String> {
        let options = c::CallOptions {
            struct_size: mem::size_of::<c::CallOptions>(),
            timeout_us: 30_000_000,
            context: ptr::null_mut(),
            priority: 0,
            wait_for_server: 0,
            no_retry: 0,
            reserved: 0,
        };
        unsafe {
            let reply = c::weft_message_new();
            let end = check(c::weft_call(
                self.0,
                method,
                bytes_of(request),
                &options,
                reply,
            ));
            let bytes = slice_of(c::weft_message_bytes(reply)).to_vec();
            c::weft_message_free(reply);
            end.map(|()| bytes)
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Err(error) = check(unsafe { c::weft_channel_free(self.0) }) {
            eprintln!("{}", error);
        }
    }
}

/// What answers a request. It runs on Weft's thread, and does not panic: nothing unwinds through C.
type Say = dyn Fn(&[u8]) -> Vec<u8> + Send + Sync;

extern "C" fn on_say(arg: *mut c_void, call: *mut c::Call) {
    unsafe {
        let say = &*(arg as *const Box<Say>);
        let reply = say(slice_of(c::weft_server_call_request(call)));
        c::weft_server_call_finish(call, ptr::null_mut(), bytes_of(&reply));
    }
}

struct Server {
    server: *mut c::Server,
    say: *mut Box<Say>, // from Box::into_raw(): handlers have it until the server is freed
}

impl Server {
    fn serve(address: &str, say: Box<Say>) -> Result<Server, String> {
        let (address, echo, name) = (text(address)?, text("echo.Echo")?, text("Say")?);
        let mut server = ptr::null_mut();
        unsafe {
            check(c::weft_server_new(
                ptr::null_mut(),
                ptr::null(),
                &mut server,
            ))?;
            let made = Server {
                server,
                say: Box::into_raw(Box::new(say)),
            };
            let service = c::weft_service_new(echo.as_ptr());
            if let Err(error) = check(c::weft_service_add_method(
                service,
                name.as_ptr(),
                c::UNARY,
                c::ONCE,
                on_say,
                made.say as *mut c_void,
            )) {
                c::weft_service_free(service);
                return Err(error);
            }
            // The server takes the service, whatever comes of it.
            check(c::weft_server_add_service(server, service))?;
            check(c::weft_server_listen(server, address.as_ptr()))?;
            Ok(made)
        }
    }

    fn address(&self) -> String {
        let address = unsafe { CStr::from_ptr(c::weft_server_address(self.server)) };
        address.to_string_lossy().into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = check(unsafe { c::weft_server_free(self.server) }) {
            eprintln!("{}", error);
        }
        // Behind this no handler runs.
        drop(unsafe { Box::from_raw(self.say) });
    }
}

fn call(address: &str, said: &str) -> Result<String, String> {
    if said.len() > 127 {
        return Err("the text is longer than the 127 bytes that this example encodes".to_string());
    }
    let channel = Channel::open(address)?;
    let say = channel.method("echo.Echo", "Say")?;
    let mut request = vec![0x0A, said.len() as u8];
    request.extend_from_slice(said.as_bytes());
    let reply = channel.call(say, &request)?;
    Ok(String::from_utf8_lossy(reply.get(2..).unwrap_or(&[])).into_owned())
}

fn serve() -> Result<(), String> {
    let server = Server::serve("127.0.0.1:0", Box::new(|request: &[u8]| request.to_vec()))?;
    println!("{}", server.address());
    let read = io::stdin().read_to_end(&mut Vec::new());
    read.map(|_| ()).map_err(|error| error.to_string())
}

fn main() {
    let words: Vec<String> = env::args().collect();
    let end = match &words[1..] {
        [address, said] => call(address, said).map(|reply| println!("{}", reply)),
        _ => serve(),
    };
    if let Err(error) = end {
        eprintln!("{}", error);
        process::exit(1);
    }
}
