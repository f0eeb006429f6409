package memory_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cage-qat/cage/host/compute/memory"
)

// TestGet checks that slices of each type have the length asked for, new and used ones.
func TestGet(t *testing.T) {
	var pool memory.Pool
	for range 3 {
		for length := range 5 {
			floats := pool.Get(reflect.TypeFor[float32](), length)
			bytes := pool.Get(reflect.TypeFor[int8](), length)
			if len(floats.([]float32)) != length || len(bytes.([]int8)) != length {
				t.Errorf("got %v and %v, want %d elements", floats, bytes, length)
			}
			pool.Put(floats)
			pool.Put(bytes)
		}
	}
}

// TestSweep checks that slices which nobody has used for a while are dropped, and no others.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool memory.Pool
		first := pool.Get(reflect.TypeFor[float32](), 2).([]float32)
		pool.Put(first)
		first[0] = 7
		time.Sleep(50 * time.Second)
		pool.Put(pool.Get(reflect.TypeFor[int32](), 1))
		if again := pool.Get(reflect.TypeFor[float32](), 2).([]float32); again[0] != 7 {
			t.Error("a slice is dropped after 50 seconds")
		} else {
			pool.Put(again)
		}
		time.Sleep(2 * time.Minute)
		pool.Put(pool.Get(reflect.TypeFor[int32](), 1))
		if again := pool.Get(reflect.TypeFor[float32](), 2).([]float32); again[0] == 7 {
			t.Error("a slice is kept for two minutes")
		}
	})
}

func Example() {
	var pool memory.Pool
	slice := pool.Get(reflect.TypeFor[uint16](), 3)
	fmt.Println(slice)
	pool.Put(slice)
	// Output: [0 0 0]
}

// TestParts checks on random requests that slices in use do not overlap, and that memory that is
// given back is joined again.
func TestParts(t *testing.T) {
	var pool memory.Pool
	rng := rand.New(rand.NewPCG(1, 2))
	type part struct {
		elements []int32
		mark     int32
	}
	var used []part
	give := func(at int) {
		p := used[at]
		for i, v := range p.elements {
			if v != p.mark {
				t.Fatalf("element %d of %d is %d, want %d", i, len(p.elements), v, p.mark)
			}
		}
		pool.Put(p.elements)
		used = slices.Delete(used, at, at+1)
	}
	for mark := range int32(3000) {
		if len(used) > 0 && rng.IntN(2) == 0 {
			give(rng.IntN(len(used)))
		}
		p := part{pool.Get(reflect.TypeFor[int32](), 1+rng.IntN(3000)).([]int32), mark}
		if cap(p.elements) != len(p.elements) {
			t.Fatal("a slice can grow into its neighbor")
		}
		for i := range p.elements {
			p.elements[i] = mark
		}
		if used = append(used, p); len(used) > 20 {
			give(0)
		}
	}
	for len(used) > 0 {
		give(len(used) - 1)
	}
	const whole = 1 << 16 // elements of the smallest chunk
	first := pool.Get(reflect.TypeFor[int32](), whole).([]int32)
	if first[0]+first[whole-1] == 0 { // new memory is clear
		t.Error("what was given back is not one part again")
	}
}

// TestForeign checks that a slice of another origin is not given out.
func TestForeign(t *testing.T) {
	var pool memory.Pool
	pool.Put(pool.Get(reflect.TypeFor[float32](), 3))
	foreign := []float32{7, 7, 7}
	pool.Put(foreign)
	pool.Put([]int32{7})
	for range 3 {
		if got := pool.Get(reflect.TypeFor[float32](), 3).([]float32); &got[0] == &foreign[0] {
			t.Error("a slice that is not of the pool is given out")
		}
	}
}
