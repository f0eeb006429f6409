package engine

import "errors"

// Input is a float32 input on which a graph is evaluated, with its elements in row-major order.
type Input struct {
	Spec
	Data []float32
}

// Evaluate compiles a graph, executes it once, and returns its outputs, which are float32.
func (d *Device) Evaluate(name string, inputs []Input, build BuildFunc) (values [][]float32, err error) {
	specs := make([]Spec, len(inputs))
	for i, in := range inputs {
		specs[i] = in.Spec
	}
	e, err := d.Compile(name, specs, build)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	var buffers []*Buffer
	defer func() { err = errors.Join(err, FinalizeAll(buffers...)) }()
	for _, in := range inputs {
		b, err := Upload(d, in.Data, in.Shape.Dimensions...)
		if err != nil {
			return nil, err
		}
		buffers = append(buffers, b)
	}
	out, err := e.Run(buffers, nil)
	if err != nil {
		return nil, err
	}
	buffers = append(buffers, out...)
	for _, b := range out {
		v, err := Download[float32](b)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// Try finds out, once for each device, whether the device does something right. If it does not, Try warns about what is
// done instead (inPlace), with the error of the trial as the reason, and returns that error from then on. The key is as
// for [Device.Once].
func (d *Device) Try(key any, inPlace string, trial func(*Device) error) error {
	err, _ := d.Once(key, func() any {
		err := trial(d)
		if err != nil {
			d.Warn(inPlace, "reason", err)
		}
		return err
	}).(error)
	return err
}
