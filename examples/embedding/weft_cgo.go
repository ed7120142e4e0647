// The echo of examples/echo in Go, by cgo and the C interface.
//
//	weft_cgo                 serves, prints its address, and ends when its standard input does
//	weft_cgo ADDRESS TEXT    calls such a server, or that of examples/echo
//
// SayRequest and SayReply are both one text with the number 1, so the server answers with the bytes
// that it got.
package main

/*
#cgo pkg-config: weft-c
#include <stdlib.h>
#include "weft/c.h"
#include "weft/c_server.h"

// In Go, below.
extern void onSay(void* arg, weft_server_call* call);
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/cgo"
	"unsafe"
)

// check takes a status: nil, or an error with its code and its words.
func check(status *C.weft_status) error {
	if status == nil {
		return nil
	}
	defer C.weft_status_free(status)
	return fmt.Errorf("%d: %s", C.weft_status_code(status),
		C.GoString(C.weft_status_message(status)))
}

// bytesOf is good for the length of one call of C, which may not keep what is Go's.
func bytesOf(data []byte) C.weft_bytes {
	if len(data) == 0 {
		return C.weft_bytes{}
	}
	return C.weft_bytes{data: unsafe.Pointer(&data[0]), size: C.size_t(len(data))}
}

// withText lends a text to functions that copy it, or are done with it when they return.
func withText(text string, use func(*C.char) error) error {
	copied := C.CString(text)
	defer C.free(unsafe.Pointer(copied))
	return use(copied)
}

type handler func(request []byte) []byte

// Runs on the server's thread, which is Weft's.
//
//export onSay
func onSay(arg unsafe.Pointer, call *C.weft_server_call) {
	request := C.weft_server_call_request(call)
	handle := *(*cgo.Handle)(arg)
	say := handle.Value().(handler)
	reply := say(C.GoBytes(request.data, C.int(request.size)))
	C.weft_server_call_finish(call, nil, bytesOf(reply))
}

func serve(say handler) error {
	// What C keeps is C's memory: it has the handle's number.
	handle := cgo.NewHandle(say)
	defer handle.Delete()
	arg := C.malloc(C.size_t(unsafe.Sizeof(handle)))
	defer C.free(arg)
	*(*cgo.Handle)(arg) = handle

	var service *C.weft_service
	withText("echo.Echo", func(name *C.char) error {
		service = C.weft_service_new(name)
		return nil
	})
	if err := withText("Say", func(name *C.char) error {
		return check(C.weft_service_add_method(service, name, C.WEFT_UNARY, C.WEFT_ONCE,
			C.weft_handler(C.onSay), arg))
	}); err != nil {
		C.weft_service_free(service)
		return err
	}
	var server *C.weft_server
	if err := check(C.weft_server_new(nil, nil, &server)); err != nil {
		C.weft_service_free(service)
		return err
	}
	// Behind this no handler runs.
	defer func() { check(C.weft_server_free(server)) }()
	// The server takes the service, whatever comes of it.
	if err := check(C.weft_server_add_service(server, service)); err != nil {
		return err
	}
	if err := withText("127.0.0.1:0", func(address *C.char) error {
		return check(C.weft_server_listen(server, address))
	}); err != nil {
		return err
	}
	fmt.Println(C.GoString(C.weft_server_address(server)))
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func call(address, text string) (string, error) {
	if len(text) > 127 {
		return "", errors.New("the text is longer than the 127 bytes that this example encodes")
	}
	var channel *C.weft_channel
	if err := withText(address, func(address *C.char) error {
		return check(C.weft_channel_open(nil, address, nil, &channel))
	}); err != nil {
		return "", err
	}
	defer func() { check(C.weft_channel_free(channel)) }()
	var say C.weft_method
	if err := withText("echo.Echo", func(service *C.char) error {
		return withText("Say", func(method *C.char) error {
			return check(C.weft_channel_method(channel, service, method, C.WEFT_UNARY, C.WEFT_ONCE,
				&say))
		})
	}); err != nil {
		return "", err
	}
	options := C.weft_call_options{timeout_us: 30_000_000}
	options.struct_size = C.size_t(unsafe.Sizeof(options))
	reply := C.weft_message_new()
	defer C.weft_message_free(reply)
	request := append([]byte{0x0A, byte(len(text))}, text...)
	if err := check(C.weft_call(channel, say, bytesOf(request), &options, reply)); err != nil {
		return "", err
	}
	bytes := C.weft_message_bytes(reply)
	said := C.GoBytes(bytes.data, C.int(bytes.size))
	if len(said) < 2 {
		return "", nil
	}
	return string(said[2:]), nil
}

func main() {
	var err error
	if len(os.Args) == 3 {
		var said string
		if said, err = call(os.Args[1], os.Args[2]); err == nil {
			fmt.Println(said)
		}
	} else {
		err = serve(func(request []byte) []byte { return request })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
