package engine

import (
	"errors"
	"fmt"
	"testing"
)

// TestMemoryError checks which errors of PJRT and XLA mean that the device has too little memory.
func TestMemoryError(t *testing.T) {
	for text, want := range map[string]bool{
		"PJRT error (code=8): RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 " +
			"bytes.": true,
		"PJRT error (code=8): RESOURCE_EXHAUSTED: Out of memory while trying to allocate " +
			"99999999999999999999 by": true,
		"PJRT error (code=8): no room for the losses": true,
		"PJRT error (code=13): INTERNAL: CUDA error: CUDA_ERROR_OUT_OF_MEMORY: out of " +
			"memory": true,
		"PJRT error (code=8): RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested " +
			"299008": false,
		"PJRT error (code=13): an illegal address": false,
	} {
		for panics, f := range map[bool]func() error{
			false: func() error { return fmt.Errorf("execute: %w", errors.New(text)) },
			true:  func() error { panic(errors.New(text)) },
		} {
			err := catch(f)
			e, ok := errors.AsType[*MemoryError](err)
			if ok != want {
				t.Errorf("%s (panics: %t): %+v", text, panics, e)
			}
		}
	}
	if err := catch(func() error { return nil }); err != nil {
		t.Error(err)
	}
}
