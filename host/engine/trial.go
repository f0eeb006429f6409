package engine

import "errors"

// Input is a float32 tensor that a graph is evaluated on: elements in row-major order.
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

// Try finds out, once on each device, whether it does something right. Where it does not, the device warns of what is
// done in its place, with the error of the trial as the reason, and returns that error ever after. The key is as for
// [Device.Once].
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
