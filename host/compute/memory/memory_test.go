package memory_test

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/compute/memory"
)

// TestGet checks that slices of each type have the length asked for, new and used ones.
func TestGet(t *testing.T) {
	var pool memory.Pool
	for range 3 {
		for length := range 5 {
			floats, bytes := memory.Get[float32](&pool, length), memory.Get[int8](&pool, length)
			if len(floats.([]float32)) != length || len(bytes.([]int8)) != length {
				t.Errorf("got %v and %v, want %d elements", floats, bytes, length)
			}
			pool.Put(floats)
			pool.Put(bytes)
		}
	}
}

func Example() {
	var pool memory.Pool
	slice := memory.Get[uint16](&pool, 3)
	fmt.Println(slice)
	pool.Put(slice)
	// Output: [0 0 0]
}
