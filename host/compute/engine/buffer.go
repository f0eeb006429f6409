package engine

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
)

// Element is a Go type whose slices can be uploaded to a device.
type Element = shapes.Element

// A Buffer is a tensor in a device's memory: a shape and its elements in row-major order. Each
// replica of the device has the whole tensor or, if it is sharded, an equal part along the first
// axis. A Buffer must be used by one goroutine at a time, except that several executables may read
// it concurrently.
type Buffer struct {
	device  *Device
	shape   shapes.Shape // of the whole tensor
	sharded bool         // false with one replica
	// data has one buffer for each of this process's replicas; it is nil once the buffer is gone.
	data atomic.Pointer[[]part]
}

// A part is a tensor on one replica: that of a client, or [hostMemory].
type part interface {
	Finalize() error
	// Download copies all elements into a slice.
	Download(dst any) error
}

func newBuffer(d *Device, data []part, shape shapes.Shape, sharded bool) *Buffer {
	b := &Buffer{device: d, shape: shape, sharded: sharded}
	b.data.Store(&data)
	return b
}

// Shape returns the element type and the dimensions of the whole tensor, even after the buffer is
// gone.
func (b *Buffer) Shape() shapes.Shape { return b.shape }

// PartBytes returns the number of bytes that the buffer takes on each replica.
func (b *Buffer) PartBytes() int64 {
	bytes := b.shape.ByteSize()
	if b.sharded {
		bytes /= int64(b.device.Count())
	}
	return bytes
}

// Gone reports whether the buffer has been finalized or donated.
func (b *Buffer) Gone() bool { return b.data.Load() == nil }

// Finalize frees the buffer's memory. It does nothing if the buffer is nil or gone.
func (b *Buffer) Finalize() error {
	if b == nil {
		return nil
	}
	data := b.data.Swap(nil)
	if data == nil || b.device.gone() {
		return nil
	}
	if err := finalize(*data); err != nil {
		return fmt.Errorf("freeing a buffer of shape %s: %w", b.shape, err)
	}
	return nil
}

func finalize(data []part) error {
	errs := lists.Map(data, func(p part) error { return catch(p.Finalize) })
	return errors.Join(errs...)
}

// FinalizeAll frees all buffers, skipping nil ones, and joins their errors.
func FinalizeAll(buffers ...*Buffer) error {
	return errors.Join(lists.Map(buffers, (*Buffer).Finalize)...)
}

// Upload copies data to each replica of the device as a tensor of the given dimensions, in
// row-major order; without dimensions it is a scalar. The slice may be reused when Upload returns.
func Upload[T Element](d *Device, data []T, dims ...int) (*Buffer, error) {
	return upload(d, data, dims, false)
}

// UploadSharded is [Upload] or, if sharded is set and there are several replicas, copies to each
// its part of the tensor: the first axis is divided into equal parts.
func UploadSharded[T Element](d *Device, data []T, sharded bool, dims ...int) (*Buffer, error) {
	return upload(d, data, dims, sharded && d.Count() > 1)
}

// UploadLike copies data to the device as a buffer of the same shape as b, which is sharded if b
// is.
func UploadLike[T Element](b *Buffer, data []T) (*Buffer, error) {
	return upload(b.device, data, b.shape.Dimensions, b.sharded)
}

func upload[T Element](d *Device, data []T, dims []int, sharded bool) (*Buffer, error) {
	shape, err := makeShape(shapes.Of[T](), len(data), dims)
	if err != nil {
		return nil, fmt.Errorf("upload: %w", err)
	}
	if err := d.checkOpen(); err != nil {
		return nil, fmt.Errorf("upload of shape %s: %w", shape, err)
	}
	if d.SharesMemory() {
		m := d.newHostMemory(shape)
		copyElements(m.elements, data)
		return newBuffer(d, []part{m}, shape, false), nil
	}
	own := shape.Clone()
	if sharded {
		if shape.Rank() == 0 || dims[0]%d.Count() != 0 {
			return nil, fmt.Errorf("upload of shape %s: its first axis is not a multiple of %d shards",
				shape, d.Count())
		}
		own.Dimensions[0] /= d.Count()
	}
	first, count := d.mine()
	parts := make([]part, 0, count)
	for i := range count {
		local := data
		if sharded {
			at := (first + i) * own.Size()
			local = data[at : at+own.Size()]
		}
		var p part
		err := d.within(func() (err error) {
			p, err = d.client.upload(i, local, own)
			return err
		}, nil)
		if err != nil {
			err = advisedError{fmt.Errorf("upload of shape %s: %w", shape, err)}
			return nil, errors.Join(err, newBuffer(d, parts, shape, sharded).Finalize())
		}
		parts = append(parts, p)
	}
	return newBuffer(d, parts, shape, sharded), nil
}

// Fill creates a tensor of the given dimensions on each replica and calls write to set its
// elements. write must set all of them, as they are uninitialized. On the CPU device it writes
// directly into the tensor's memory, so that nothing is copied.
func Fill[T Element](d *Device, dims []int, write func([]T) error) (*Buffer, error) {
	shape, err := shapeOf(shapes.Of[T](), dims)
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	if !d.SharesMemory() {
		data := make([]T, shape.Size())
		if err := write(data); err != nil {
			return nil, err
		}
		return Upload(d, data, dims...)
	}
	if err := d.checkOpen(); err != nil {
		return nil, fmt.Errorf("memory of shape %s: %w", shape, err)
	}
	m := d.newHostMemory(shape)
	data, ok := elementsOf[T](m.elements)
	if !ok {
		return nil, fmt.Errorf("memory of shape %s as %T", shape, data)
	}
	if err := write(data); err != nil {
		return nil, errors.Join(err, m.Finalize())
	}
	return newBuffer(d, []part{m}, shape, false), nil
}

// FillBFloat16 is [Fill] for a tensor of bfloat16 on the CPU device, given its elements' bits.
func FillBFloat16(d *Device, dims []int, write func([]uint16) error) (*Buffer, error) {
	return Fill(d, dims, func(short []shapes.BFloat) error {
		return write(bits(short).([]uint16))
	})
}

// Zeros creates a float32 tensor of zeros.
func Zeros(d *Device, dims ...int) (*Buffer, error) {
	return Fill(d, dims, func(data []float32) error {
		clear(data)
		return nil
	})
}

// makeShape calls shapeOf and checks that the dimensions hold n elements.
func makeShape(dtype shapes.DType, n int, dims []int) (shapes.Shape, error) {
	shape, err := shapeOf(dtype, dims)
	if err == nil && shape.Size() != n {
		err = fmt.Errorf("got %d elements for dimensions %v, want %d", n, dims, shape.Size())
	}
	return shape, err
}

// shapeOf returns a shape, or an error if a dimension is negative or the size overflows an int.
func shapeOf(dtype shapes.DType, dims []int) (shapes.Shape, error) {
	size := 1
	for _, dim := range dims {
		if dim < 0 {
			return shapes.Shape{}, fmt.Errorf("dimensions %v: must not be negative", dims)
		}
		if dim > 0 && size > math.MaxInt/dim {
			return shapes.Shape{}, fmt.Errorf("dimensions %v: too many elements for an int", dims)
		}
		size *= dim
	}
	return shapes.Make(dtype, dims...), nil
}

// Download returns a copy of the buffer's elements in row-major order, from the first replica if
// the buffer is not sharded. T must be the buffer's element type.
func Download[T Element](b *Buffer) ([]T, error) {
	data := make([]T, b.shape.Size())
	if err := DownloadInto(b, data); err != nil {
		return nil, err
	}
	return data, nil
}

// DownloadInto copies the buffer's elements into dst, which must have the same length and element
// type.
func DownloadInto[T Element](b *Buffer, dst []T) error {
	if b.Elsewhere() {
		return fmt.Errorf("download of shape %s: other processes hold parts of the tensor", b.shape)
	}
	return downloadInto(b, dst)
}

// DownloadOwn returns a copy of this process's part of a buffer; its shape is [Buffer.OwnShape].
func DownloadOwn[T Element](b *Buffer) ([]T, error) {
	data := make([]T, b.OwnShape().Size())
	return data, downloadInto(b, data)
}

func downloadInto[T Element](b *Buffer, dst []T) error {
	if err := b.usable(); err != nil {
		return fmt.Errorf("download of shape %s: %w", b.shape, err)
	}
	if dtype := shapes.Of[T](); dtype != b.shape.DType {
		return fmt.Errorf("download of shape %s: cannot store it in a slice of %s", b.shape, dtype)
	}
	if own := b.OwnShape(); len(dst) != own.Size() {
		return fmt.Errorf("download of shape %s: want a slice of %d elements, got %d",
			own, own.Size(), len(dst))
	}
	parts := *b.data.Load()
	if !b.sharded {
		parts = parts[:1]
	}
	n := len(dst) / len(parts)
	for i, p := range parts {
		err := b.device.within(func() error { return p.Download(dst[i*n : (i+1)*n]) }, nil)
		if err != nil {
			return fmt.Errorf("download of shape %s: %w", b.shape, err)
		}
	}
	return nil
}

// Elsewhere reports whether other processes hold parts of the buffer, which may be nil.
func (b *Buffer) Elsewhere() bool {
	if b == nil {
		return false
	}
	_, own := b.device.mine()
	return b.sharded && own < b.device.Count()
}

// OwnShape returns the shape of this process's part of the buffer: the whole shape, or that of the
// process's rows if the buffer is sharded among processes.
func (b *Buffer) OwnShape() shapes.Shape {
	if !b.Elsewhere() {
		return b.shape
	}
	_, own := b.device.mine()
	shape := b.shape.Clone()
	shape.Dimensions[0] = shape.Dimensions[0] / b.device.Count() * own
	return shape
}

// Data returns the buffer's own memory; only the buffers of the CPU device are in host memory.
// The slice is valid until the buffer is finalized or donated. Write to it only while nothing else
// reads it.
func Data[T Element](b *Buffer) ([]T, error) {
	if err := b.usable(); err != nil {
		return nil, fmt.Errorf("memory of shape %s: %w", b.shape, err)
	}
	if !b.device.SharesMemory() {
		return nil, fmt.Errorf("memory of shape %s: the buffer is not in host memory", b.shape)
	}
	data, ok := elementsOf[T]((*b.data.Load())[0].(*hostMemory).elements)
	if !ok {
		return nil, fmt.Errorf("memory of shape %s as %T", b.shape, data)
	}
	return data, nil
}

// View returns this process's part of the buffer ([Buffer.OwnShape]), read-only: the buffer's own
// memory if that is host memory ([Data]), otherwise a copy.
func View[T Element](b *Buffer) ([]T, error) {
	if b.device.SharesMemory() {
		return Data[T](b)
	}
	return DownloadOwn[T](b)
}

// usable returns an error if the buffer or its device is gone.
func (b *Buffer) usable() error {
	if b.Gone() {
		return ErrBufferGone
	}
	return b.device.checkOpen()
}
