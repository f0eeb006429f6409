//go:build cuda

package engine

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/pjrt"

	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
)

// pjrtClient is a [client] of a PJRT plugin.
type pjrtClient struct {
	*pjrt.Client
	count int // devices of all processes
}

func (c *pjrtClient) devices() int { return c.count }

func (c *pjrtClient) description() string {
	return fmt.Sprintf("%s, %d GPU(s)", c.Plugin(), c.count)
}

func (c *pjrtClient) close() error { return c.Destroy() }

// pjrtTypes are PJRT's names of the types of elements.
var pjrtTypes = map[shapes.DType]dtypes.DType{
	shapes.Bool: dtypes.Bool, shapes.Int8: dtypes.Int8, shapes.Uint8: dtypes.Uint8,
	shapes.Int32: dtypes.Int32, shapes.Uint32: dtypes.Uint32, shapes.Float16: dtypes.Float16,
	shapes.BFloat16: dtypes.BFloat16, shapes.Float32: dtypes.Float32, shapes.Float64: dtypes.Float64,
}

// bytesOf returns the memory of a slice of elements.
func bytesOf(slice any) []byte {
	v := reflect.ValueOf(slice)
	return unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))
}

// upload implements client.
func (c *pjrtClient) upload(replica int, data any, shape shapes.Shape) (part, error) {
	b, err := c.BufferFromHost().FromRawData(bytesOf(data), pjrtTypes[shape.DType],
		shape.Dimensions).ToDeviceNum(replica).Done()
	if err != nil {
		return nil, err
	}
	return pjrtBuffer{b}, nil
}

// compile implements client.
func (c *pjrtClient) compile(text string, replicas, own int) (program, error) {
	config := c.Compile().WithStableHLO([]byte(text))
	if replicas > 1 {
		config = config.WithSPMD(replicas).WithDeviceAssignment(lists.Range(replicas))
	}
	e, err := config.Done()
	if err != nil {
		return nil, err
	}
	if own < replicas {
		// go-xla runs an executable on all devices that it was compiled for, and not only on those of
		// this process.
		hidden(e, "numReplicas").SetInt(int64(own))
	}
	return pjrtProgram{e}, nil
}

// pjrtBuffer is a [part].
type pjrtBuffer struct{ *pjrt.Buffer }

func (b pjrtBuffer) Finalize() error { return b.Destroy() }

func (b pjrtBuffer) Download(dst any) error {
	if bytes := bytesOf(dst); len(bytes) > 0 {
		return b.ToHost(bytes)
	}
	return nil
}

// pjrtProgram is a [program].
type pjrtProgram struct{ *pjrt.LoadedExecutable }

func (p pjrtProgram) run(inputs []part, donate []bool) ([]part, error) {
	call := p.Execute(lists.Map(inputs, func(b part) *pjrt.Buffer { return b.(pjrtBuffer).Buffer })...)
	if len(donate) > 0 {
		call = call.SetDonate(donate)
	}
	outputs, err := call.Done()
	return lists.Map(outputs, func(b *pjrt.Buffer) part { return pjrtBuffer{b} }), err
}

func (p pjrtProgram) memory() Memory {
	m := p.OnDeviceMemoryUsageStats
	return Memory{m.GeneratedCode, m.Inputs, m.Outputs, m.Aliases, m.Temporary}
}

func (p pjrtProgram) close() error { return p.Destroy() }
