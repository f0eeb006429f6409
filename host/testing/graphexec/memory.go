package graphexec

import (
	"math/bits"
	"reflect"
	"runtime"
	"sync"
	"unsafe"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
)

// newBytes returns n bytes, aligned for elements of all types.
func newBytes(n int) []byte {
	words := make([]uint64, n/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// as returns the elements in memory. Operations that only move elements use integers of their size.
func as[T shapes.Element | uint16 | int64 | uint64](b []byte) []T {
	var element T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(element)))
}

// bytesOf returns the memory of a slice; ok is false if it does not have the elements of a shape.
func bytesOf(slice any, shape shapes.Shape) (b []byte, ok bool) {
	v := reflect.ValueOf(slice)
	if slice == nil || v.Type() != reflect.SliceOf(shape.DType.GoType()) || v.Len() != shape.Size() {
		return nil, false
	}
	return unsafe.Slice((*byte)(v.UnsafePointer()), shape.ByteSize()), true
}

// sliceOf returns the elements in memory as a slice.
func sliceOf(b []byte, shape shapes.Shape) any {
	p := unsafe.Pointer(unsafe.SliceData(b))
	return reflect.SliceAt(shape.DType.GoType(), p, shape.Size()).Interface()
}

var scratch [bits.UintSize]sync.Pool // of *[]byte, by the logarithm of their size

// temporary returns n bytes, and a function that the caller must call after using them.
func temporary(n int) (b []byte, release func()) {
	size := bits.Len(uint(n))
	p, ok := scratch[size].Get().(*[]byte)
	if !ok {
		p = new([]byte)
		*p = newBytes(1 << size)
	}
	return (*p)[:n], func() { scratch[size].Put(p) }
}

// split calls f for parts of 0, 1, …, n-1 of at least grain numbers, on all processors.
func split(n, grain int, f func(from, to int)) {
	parts := min(runtime.GOMAXPROCS(0), n/max(1, grain))
	if parts < 2 {
		f(0, n)
		return
	}
	var group sync.WaitGroup
	for i := range parts {
		group.Go(func() { f(i*n/parts, (i+1)*n/parts) })
	}
	group.Wait()
}

// inType returns a kernel for an operation, given one for operands and results of another type. It
// converts the operands that have the type of the first, and the result unless that is of bools.
func inType(op *graph.Operation, dtype shapes.DType, k kernel) kernel {
	from, to := op.Args[0].DType(), op.Results[0].DType()
	widen, narrow := converter(from, dtype, false), converter(dtype, to, from.IsFloat())
	return func(in, out [][]byte) {
		args := make([][]byte, len(in))
		for i, b := range in {
			if args[i] = b; op.Args[i].DType() == from {
				wide, release := temporary(len(b) / from.Size() * dtype.Size())
				defer release()
				widen(wide, b)
				args[i] = wide
			}
		}
		if to == dtype || to == shapes.Bool {
			k(args, out)
			return
		}
		result, release := temporary(len(out[0]) / to.Size() * dtype.Size())
		defer release()
		k(args, [][]byte{result})
		narrow(out[0], result)
	}
}
