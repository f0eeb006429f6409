package plan

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/sdk/program"
)

// storeInputs stores inputs as the options say. Instructions that cannot read that type read a copy
// in float32, made before the first of them.
func (c *compiler) storeInputs() {
	for i, in := range c.p.Inputs {
		at := c.options.Inputs[in.Name]
		if at == "" || in.Type.DType != program.Float {
			continue
		}
		c.slots[i].stored = at // the slot of an input has its index
		wide := -1
		for k := 0; k < len(c.list); k++ {
			for j, s := range c.list[k].in {
				if s != i || c.list[k].reads(j, at, c.options) {
					continue
				}
				if wide < 0 {
					wide = c.newSlot(in.Type)
					c.list = slices.Insert(c.list, k, converting(i, wide, at, true))
					k++
				}
				c.list[k].in[j] = wide
			}
		}
	}
}

// reads reports whether an instruction can read an input that is stored so.
func (in *instruction) reads(input int, at passes.Storage, o Options) bool {
	switch at {
	case passes.BFloat16:
		return in.compile != nil || listed(in.bfloat16, input) ||
			o.Arithmetic == matmul.BFloat16 && listed(in.rounds, input)
	case passes.Int8:
		return in.compile != nil || listed(in.codes, input)
	case passes.Uint8:
		return in.compile != nil
	}
	return false
}

// storeOutputs stores outputs as the options say: where they are computed, or by a conversion in
// the end.
func (c *compiler) storeOutputs() {
	for s := range c.slots {
		output := c.slots[s].output
		if output < 0 {
			continue
		}
		at := c.options.Outputs[c.p.Outputs[output].Name]
		if at == "" || c.slots[s].dtype != program.Float {
			continue
		}
		read, direct := false, false
		for _, in := range c.list {
			for _, from := range in.in {
				read = read || from == s
			}
			for _, to := range in.out {
				direct = direct || to == s && in.compile != nil && at != passes.Float16
			}
		}
		if direct && !read {
			c.slots[s].stored = at
			continue
		}
		stored := c.slots[s]
		stored.stored = at
		c.slots[s].output = -1
		c.slots = append(c.slots, stored)
		c.list = append(c.list, converting(s, len(c.slots)-1, at, false))
	}
}

// storeCodes stores in 8 bits values that all readers read as codes, if the instruction computing
// them can.
func (c *compiler) storeCodes() {
	whole := map[int]bool{} // slots that are written or read as floats
	for _, in := range c.list {
		for i, s := range in.in {
			whole[s] = whole[s] || !listed(in.codes, i)
		}
		for _, s := range in.out {
			whole[s] = whole[s] || in.compile == nil
		}
	}
	for _, in := range c.list {
		for i, s := range in.in {
			if listed(in.codes, i) && !whole[s] && c.slots[s].stored == "" && c.slots[s].output < 0 {
				c.slots[s].stored = passes.Int8
			}
		}
	}
}

// storeBools stores bools in bits where passes write and read them.
func (c *compiler) storeBools() {
	whole := map[int]bool{}
	for _, in := range c.list {
		for _, s := range slices.Concat(in.in, in.out) {
			whole[s] = whole[s] || in.compile == nil
		}
	}
	for i := range c.slots {
		s := &c.slots[i]
		if s.dtype == program.Bool && s.size%8 == 0 && !whole[i] && s.inside() {
			s.stored, s.size = passes.Bits, s.size/8
		}
	}
}

// shorten stores values in bfloat16 that every reader rounds, where the instruction that computes
// them can.
func (c *compiler) shorten() {
	keeps := map[int]bool{} // slots that an instruction reads unrounded
	for _, in := range c.list {
		for i, s := range in.in {
			keeps[s] = keeps[s] || !listed(in.rounds, i)
		}
	}
	for _, in := range c.list {
		for i, id := range in.out {
			if id < 0 || !listed(in.short, i) || keeps[id] {
				continue
			}
			s := &c.slots[id]
			if s.output < 0 && s.dtype == program.Float && s.stored == "" {
				s.stored = passes.BFloat16
			}
		}
	}
}

// reuse lets instructions compute values in the memory of operands that no later one reads: both
// then have one slot.
func (c *compiler) reuse() {
	first, last := map[int]int{}, map[int]int{} // uses of slots
	for i, in := range c.list {
		for _, s := range slices.Concat(in.in, in.out) {
			if _, used := last[s]; !used {
				first[s] = i
			}
			last[s] = i
		}
	}
	within := func(s int) bool {
		return s >= 0 && c.slots[s].inside() && c.slots[s].size > 1 // updates side by side share numbers
	}
	for i, in := range c.list {
		for o, to := range in.out {
			if in.overwrites == nil || !within(to) || first[to] != i {
				continue
			}
			k := slices.IndexFunc(in.in, func(s int) bool {
				return within(s) && last[s] == i && c.slots[s] == c.slots[to] &&
					!slices.Contains(in.out, s) && in.overwrites(o, slices.Index(in.in, s))
			})
			if k < 0 || slices.Contains(in.in[k+1:], in.in[k]) {
				continue
			}
			from := in.in[k]
			for _, later := range c.list[i : last[to]+1] {
				for _, list := range [][]int{later.in, later.out} {
					for at, s := range list {
						if s == to {
							list[at] = from
						}
					}
				}
			}
			last[from] = last[to]
		}
	}
}

// converting returns the instruction that converts between float32 and another storage.
func converting(from, to int, at passes.Storage, widen bool) instruction {
	return instruction{name: fmt.Sprintf("conversion of %s", at), in: []int{from}, out: []int{to},
		run: func(in, out []any, parallel loops.Parallel) error {
			const each = 1 << 16
			n := reflect.ValueOf(out[0]).Len()
			loops.InParts(n, each, parallel, func(from, to int) {
				switch half, _ := in[0].([]uint16); {
				case widen && at == passes.Float16:
					for i := from; i < to; i++ {
						out[0].([]float32)[i] = halffloat.FromHalf(half[i])
					}
				case widen:
					cpu.Load(out[0].([]float32)[from:to], in[0], from)
				case at == passes.Float16:
					for i, x := range in[0].([]float32)[from:to] {
						out[0].([]uint16)[from+i] = halffloat.ToHalf(x)
					}
				default:
					cpu.Store(out[0], from, in[0].([]float32)[from:to])
				}
			})
			return nil
		}}
}
