#!/usr/bin/env python3
"""Weft in Python, by ctypes: a server and clients, with nothing but the installed libweft_c.so.

    weft_ctypes.py LIBRARY [ECHO]

serves echo.Echo/Say in this process, calls it, and streams, reads memory of it and sees errors; ECHO
is the program of examples/echo, which it then calls as well, and which then calls this. Prints what
it did, and fails if anything was not as it should be.
"""
import ctypes
import subprocess
import sys

UNARY, BIDI_STREAMING = 1, 4
MAY_READ, HANDLE_BYTES = 1, 56
NOT_FOUND, UNIMPLEMENTED = 5, 12


class Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]

    @classmethod
    def of(cls, data):
        """`data` has to stay as long as this is used."""
        return cls(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data))

    def __bytes__(self):
        return ctypes.string_at(self.data, self.size) if self.size else b""


class CallOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("timeout_us", ctypes.c_uint64),
                ("context", ctypes.c_void_p), ("priority", ctypes.c_int32),
                ("wait_for_server", ctypes.c_uint32), ("no_retry", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32)]


class Piece(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("buffer", ctypes.c_void_p),
                ("buffer_offset", ctypes.c_size_t), ("size", ctypes.c_size_t)]


HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
STREAM_DONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)
P, INT, SIZE, TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
OUT = ctypes.POINTER(P)

# What each function takes; those that are not in RETURNS return a status.
TAKES = {
    "status_code": [P], "status_message": [P], "status_free": [P], "status_new": [INT, TEXT],
    "channel_open": [P, TEXT, P, OUT], "channel_free": [P],
    "channel_method": [P, TEXT, TEXT, INT, INT, ctypes.POINTER(ctypes.c_uint32)],
    "message_new": [], "message_bytes": [P], "message_free": [P],
    "call": [P, ctypes.c_uint32, Bytes, ctypes.POINTER(CallOptions), P],
    "service_new": [TEXT], "service_add_method": [P, TEXT, INT, INT, HANDLER, P],
    "server_new": [P, P, OUT], "server_free": [P], "server_add_service": [P, P],
    "server_listen": [P, TEXT], "server_address": [P],
    "server_call_request": [P], "server_call_finish": [P, P, Bytes], "server_call_stream": [P],
    "stream_start": [P, ctypes.c_uint32, Bytes, P, P, OUT], "stream_free": [P],
    "stream_read": [P, P], "stream_write": [P, Bytes, INT], "stream_writes_done": [P],
    "stream_finish": [P], "stream_read_start": [P, P, STREAM_DONE, P],
    "export_new": [P, SIZE, INT, OUT], "export_data": [P], "export_handle": [P, P],
    "export_free": [P], "remote_open": [P, Bytes, OUT], "remote_free": [P],
    "remote_read": [P, ctypes.POINTER(Piece), SIZE],
    "buffer_new": [P, SIZE, OUT], "buffer_data": [P], "buffer_free": [P],
}
RETURNS = {
    "status_code": INT, "status_message": TEXT, "status_free": None, "status_new": P,
    "message_new": P, "message_bytes": Bytes, "message_free": None, "service_new": P,
    "server_address": TEXT, "server_call_request": Bytes, "server_call_finish": None,
    "server_call_stream": P, "stream_free": None, "stream_read": INT, "stream_write": INT,
    "stream_writes_done": None, "export_data": P, "export_free": None, "remote_free": None,
    "buffer_data": P, "buffer_free": None,
}


class Error(Exception):
    def __init__(self, code, message):
        super().__init__("%d: %s" % (code, message))
        self.code = code


class Weft:
    """The library: weft.call(...) is weft_call(...), and a status that is not OK is an Error."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        for name, takes in TAKES.items():
            function = getattr(library, "weft_" + name)
            function.argtypes = takes
            function.restype = RETURNS.get(name, P)
            setattr(self, name, function if name in RETURNS else self._checked(function))

    def _checked(self, function):
        def call(*arguments):
            status = function(*arguments)
            if status:
                error = Error(self.status_code(status), self.status_message(status).decode())
                self.status_free(status)
                raise error
        return call

    def made(self, function, *arguments):
        """What a function gives by its last parameter."""
        out = ctypes.c_void_p()
        function(*arguments, ctypes.byref(out))
        return out


def encoded(text):
    """An echo.SayRequest, or SayReply: one text, with the number 1."""
    data = text.encode()
    size = b""
    left = len(data)
    while left > 127:
        size += bytes([left & 127 | 128])
        left >>= 7
    return b"\x0a" + size + bytes([left]) + data


class EchoServer:
    """Serves echo.Echo. Handlers run on Weft's thread, one after the other."""

    def __init__(self, weft):
        self.weft = weft
        self.handlers = [HANDLER(self.say), HANDLER(self.fail), HANDLER(self.chat)]
        self.reads = {}  # of chats: what has to stay until a callback has run
        service = weft.service_new(b"echo.Echo")
        for name, kind, handler in ((b"Say", UNARY, self.handlers[0]),
                                    (b"Fail", UNARY, self.handlers[1]),
                                    (b"Chat", BIDI_STREAMING, self.handlers[2])):
            weft.service_add_method(service, name, kind, 0, handler, None)
        self.server = weft.made(weft.server_new, None, None)
        weft.server_add_service(self.server, service)
        weft.server_listen(self.server, b"127.0.0.1:0")
        self.address = weft.server_address(self.server).decode()

    def say(self, _, call):
        request = bytes(self.weft.server_call_request(call))
        self.weft.server_call_finish(call, None, Bytes.of(request))

    def fail(self, _, call):
        self.weft.server_call_finish(call, self.weft.status_new(NOT_FOUND, b"nothing here"), Bytes())

    def chat(self, _, call):
        stream = self.weft.server_call_stream(call)
        message = self.weft.message_new()

        def read(_, ok):
            if not ok:
                self.weft.server_call_finish(call, None, Bytes())
                self.weft.message_free(message)
                return
            # Little: it does not fill the window, so it does not wait.
            self.weft.stream_write(stream, self.weft.message_bytes(message), 0)
            self.weft.stream_read_start(stream, message, self.reads[call], None)

        self.reads[call] = STREAM_DONE(read)
        self.weft.stream_read_start(stream, message, self.reads[call], None)

    def close(self):
        self.weft.server_free(self.server)


class Client:
    def __init__(self, weft, address):
        self.weft = weft
        self.channel = weft.made(weft.channel_open, None, address.encode(), None)
        self.message = weft.message_new()

    def method(self, name, kind=UNARY):
        number = ctypes.c_uint32()
        self.weft.channel_method(self.channel, b"echo.Echo", name, kind, 0, ctypes.byref(number))
        return number

    def call(self, name, request):
        options = CallOptions(struct_size=ctypes.sizeof(CallOptions), timeout_us=30_000_000)
        self.weft.call(self.channel, self.method(name), Bytes.of(request), ctypes.byref(options),
                       self.message)
        return bytes(self.weft.message_bytes(self.message))

    def chat(self, texts):
        weft = self.weft
        stream = weft.made(weft.stream_start, self.channel, self.method(b"Chat", BIDI_STREAMING),
                           Bytes(), None, None)
        said = []
        for text in texts:
            assert weft.stream_write(stream, Bytes.of(text), 0)
            assert weft.stream_read(stream, self.message)
            said.append(bytes(weft.message_bytes(self.message)))
        weft.stream_writes_done(stream)
        assert not weft.stream_read(stream, self.message)
        weft.stream_finish(stream)
        weft.stream_free(stream)
        return said

    def read(self, handle, offset, size):
        """Of memory that the server offers."""
        weft = self.weft
        remote = weft.made(weft.remote_open, self.channel, Bytes.of(handle))
        buffer = weft.made(weft.buffer_new, self.channel, size)
        piece = Piece(offset=offset, buffer=buffer, buffer_offset=0, size=size)
        weft.remote_read(remote, ctypes.byref(piece), 1)
        data = ctypes.string_at(weft.buffer_data(buffer), size)
        weft.remote_free(remote)
        weft.buffer_free(buffer)
        return data

    def close(self):
        self.weft.message_free(self.message)
        self.weft.channel_free(self.channel)


def code_of(function, *arguments):
    try:
        function(*arguments)
    except Error as error:
        return error.code
    return 0


def main():
    weft = Weft(sys.argv[1])
    server = EchoServer(weft)
    client = Client(weft, server.address)
    for text in ("hello", "", "x" * 100_000):
        assert client.call(b"Say", encoded(text)) == encoded(text)
    assert code_of(client.call, b"Fail", b"") == NOT_FOUND
    assert code_of(client.call, b"Nothing", b"") == UNIMPLEMENTED
    print("Python calls Python")

    words = [b"one", b"", b"\x00\xff three"]
    assert client.chat(words) == words
    print("a stream of", len(words))

    memory = weft.made(weft.export_new, server.server, 4096, MAY_READ)
    ctypes.memmove(weft.export_data(memory) + 100, b"in place", 8)
    handle = ctypes.create_string_buffer(HANDLE_BYTES)
    weft.export_handle(memory, handle)
    assert client.read(handle.raw, 100, 8) == b"in place"
    weft.export_free(memory)
    print("memory read in place")
    client.close()

    if len(sys.argv) > 2:
        echo = subprocess.Popen([sys.argv[2]], stdout=subprocess.PIPE, text=True)
        try:
            client = Client(weft, echo.stdout.readline().strip())
            assert client.call(b"Say", encoded("hello")) == encoded("hello")
            client.close()
        finally:
            echo.kill()
            echo.wait()
        print("Python calls C++")
        said = subprocess.run([sys.argv[2], server.address, "hello"], stdout=subprocess.PIPE,
                              text=True, check=True, timeout=60).stdout
        assert said == "hello\n", said
        print("C++ calls Python")
    server.close()


if __name__ == "__main__":
    main()
