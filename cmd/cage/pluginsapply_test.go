package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

// TestReadNPYTruncated checks that a file with less than its header says is refused, without the
// memory for what the header says, 16 GiB.
func TestReadNPYTruncated(t *testing.T) {
	header := fmt.Sprintf("{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }\n", maxElements)
	size := binary.LittleEndian.AppendUint16(nil, uint16(len(header)))
	file := strings.NewReader("\x93NUMPY\x01\x00" + string(size) + header + "few bytes")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := readNPY(file); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got error %v, want %v", err, io.ErrUnexpectedEOF)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("%d bytes were allocated", got)
	}
}
