package engine

import (
	"errors"
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// Lend makes a tensor of the caller's memory, on a device whose memory is the host's. The memory must stay
// until the buffer is gone. [Data] is that memory; an executable reads a copy, so that it cannot keep or reuse it.
func Lend[T Element](d *Device, data []T, dims ...int) (*Buffer, error) {
	shape, err := makeShape(dtypes.FromGenericsType[T](), len(data), dims)
	if err != nil {
		return nil, fmt.Errorf("lend: %w", err)
	}
	if !d.SharesMemory() {
		return nil, fmt.Errorf("lend memory of shape %s: the device's memory is not the host's", shape)
	}
	if err := d.checkOpen(); err != nil {
		return nil, fmt.Errorf("lend memory of shape %s: %w", shape, err)
	}
	return newBuffer(d, []compute.Buffer{&lent[T]{d.backend, shape, data}}, shape, false), nil
}

// lent is a buffer of somebody else's memory.
type lent[T Element] struct {
	backend compute.Backend
	shape   shapes.Shape
	data    []T
}

func (l *lent[T]) Backend() compute.Backend { return l.backend }

func (l *lent[T]) Finalize() error { return nil }

func (l *lent[T]) Shape() (shapes.Shape, error) { return l.shape, nil }

func (l *lent[T]) DeviceNum() (compute.DeviceNum, error) { return 0, nil }

func (l *lent[T]) ToFlatData(flat any) error {
	to, ok := flat.([]T)
	if !ok || len(to) != len(l.data) {
		return fmt.Errorf("%d elements of %T into %T", len(l.data), l.data, flat)
	}
	copy(to, l.data)
	return nil
}

func (l *lent[T]) Data() (any, error) { return l.data, nil }

func (l *lent[T]) CopyToDevice(compute.DeviceNum) (compute.Buffer, error) {
	return nil, errors.New("lent memory cannot be copied to another device")
}

// own returns a copy in memory of the backend.
func (l *lent[T]) own() (compute.Buffer, error) {
	return l.backend.BufferFromFlatData(0, l.data, l.shape)
}

// copyLent replaces lent memory in a list of inputs by copies of the backend's own. It returns those that are
// not donated.
func copyLent(inputs []compute.Buffer, donate []bool) (copies []compute.Buffer, err error) {
	for i, b := range inputs {
		l, ok := b.(interface {
			own() (compute.Buffer, error)
		})
		if !ok {
			continue
		}
		if err := catch(func() (err error) {
			inputs[i], err = l.own()
			return err
		}); err != nil {
			return nil, errors.Join(err, finalize(copies))
		}
		if donate == nil || !donate[i] { // such a device has one replica
			copies = append(copies, inputs[i])
		}
	}
	return copies, nil
}
