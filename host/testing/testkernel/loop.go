package testkernel

import "fmt"

func (m *machine) loop(op *operation) error {
	// The arguments are the counter, the bounds and the step, and then for each result the carried
	// value and its initial value.
	const names = 4
	results, body := types(op.words), op.body[:] // the counter's type follows those of the results
	if len(op.args) != names+2*len(results) {
		return fmt.Errorf("%s: %d results", op.words, len(results))
	}
	var yield *operation
	if len(results) > 0 {
		if len(body) == 0 || body[len(body)-1].name != "scf.yield" ||
			len(body[len(body)-1].args) != len(results) {
			return fmt.Errorf("%s: the body does not yield %d values", op.words, len(results))
		}
		yield, body = &body[len(body)-1], body[:len(body)-1]
	}
	var bounds [3]int32
	for i, name := range op.args[1:names] {
		v := m.values[name]
		if v == nil || v.elem != "i32" || v.dims != nil {
			return fmt.Errorf("%s is not a known integer", name)
		}
		bounds[i] = v.integers[0]
	}
	carried := make([]*value, len(results))
	carry := func(i int, name, when string) error {
		switch carried[i] = m.values[name]; {
		case carried[i] == nil:
			return fmt.Errorf("%s is not known", name)
		case !carried[i].equal(results[i]):
			return fmt.Errorf("%s is %v, but the text declares %v", when, carried[i].kind, results[i])
		}
		return nil
	}
	for i := range results {
		if err := carry(i, op.args[names+2*i+1], "the first value"); err != nil {
			return err
		}
	}
	for n := bounds[0]; n < bounds[1]; n += bounds[2] {
		m.values[op.args[0]] = &value{kind: kind{"i32", nil}, integers: []int32{n}}
		for i, v := range carried {
			m.values[op.args[names+2*i]] = v
		}
		if err := m.run(body); err != nil {
			return err
		}
		for i := range results {
			if err := carry(i, yield.args[i], "what a pass yields"); err != nil {
				return err
			}
		}
	}
	for i, v := range carried {
		m.values[fmt.Sprintf("%s#%d", op.result, i)] = v
		if len(carried) == 1 {
			m.values[op.result] = v
		}
	}
	return nil
}
