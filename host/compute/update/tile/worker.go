package tile

// worker is the memory of one goroutine: registers, the slots of a tile, and the lanes of
// reductions.
type worker struct {
	registers []float32
	slots     [][]float32
	sums      []lanes
}

// run executes a unit.
func (w *worker) run(c *Call, s *state, u *unit) {
	k := c.Kernel
	w.reserve(k)
	for i, d := range k.reductions {
		if d.phase == u.phase {
			s.folds[i*s.parts+u.part] = float64(neutral(d.op))
		}
	}
	first := u.part * partTiles * Elements
	for at := first; at < min(first+partTiles*Elements, k.size); at += Elements {
		for i, d := range k.reductions {
			w.sums[i].reset(d.op)
		}
		w.place(c, at)
		interpret(k.phases[u.phase], w.slots, s.env, w.sums)
		for i, d := range k.reductions {
			if d.phase == u.phase {
				total := &s.folds[i*s.parts+u.part]
				*total = join(d.op, *total, w.sums[i].fold(d.op))
			}
		}
	}
}

// reserve makes room for a kernel.
func (w *worker) reserve(k *Kernel) {
	if n := k.registers * Elements; len(w.registers) < n {
		w.registers = make([]float32, n)
	}
	if len(w.slots) < k.slots {
		w.slots = make([][]float32, k.slots)
	}
	if len(w.sums) < len(k.reductions) {
		w.sums = make([]lanes, len(k.reductions))
	}
}

// place points the slots to the tile that begins at an element.
func (w *worker) place(c *Call, first int) {
	size := c.Kernel.size
	end := min(first+Elements, size)
	at := 0
	for _, list := range [2][][]float32{c.Inputs, c.Outputs} {
		for _, tensor := range list {
			w.slots[at] = nil
			if len(tensor) == size {
				w.slots[at] = tensor[first:end]
			}
			at++
		}
	}
	for r := range c.Kernel.registers {
		w.slots[at+r] = w.registers[r*Elements:][:end-first]
	}
}
