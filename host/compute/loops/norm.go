package loops

// A Norm describes an RMSNorm of rows, whose result is x·scale·gain.
type Norm struct {
	Width   int
	X       []float32
	Gain    []float32 // of each element of a row
	Scale   []float32 // of each row
	Adjoint []float32 // of the value
	Sum     []float32 // added to the adjoint of x; nil for none
}

// taskRows is the number of rows in a task. The adjoint of the gain is summed within tasks and then
// over tasks, so that it does not depend on the number of threads.
const taskRows = 64

// Adjoints writes the adjoints of X and of Gain.
func (n Norm) Adjoints(dx, dGain []float32, parallel Parallel) {
	tasks := (len(n.Scale) + taskRows - 1) / taskRows
	sums := make([]float32, tasks*n.Width)
	InParts(len(n.Scale), taskRows, parallel, func(from, to int) {
		scratch := scratches.Get().(*[]float32)
		defer scratches.Put(scratch)
		two := scratchOf(scratch, 2*n.Width)
		normalized, product := two[:n.Width], two[n.Width:]
		sum := sums[from/taskRows*n.Width:][:n.Width]
		for row := from; row < to; row++ {
			at, end := row*n.Width, (row+1)*n.Width
			dy, to, scale := n.Adjoint[at:end], dx[at:end], n.Scale[row]
			BinaryS(Mul, normalized, n.X[at:end], scale)
			Binary(Mul, product, dy, normalized)
			Binary(Add, sum, sum, product)
			var projection [1]float32
			GroupSumMul(projection[:], product, n.Gain, n.Width)
			BinaryS(Mul, normalized, normalized, projection[0]/float32(n.Width))
			Binary(Mul, to, dy, n.Gain)
			Binary(Sub, to, to, normalized)
			BinaryS(Mul, to, to, scale)
			if n.Sum != nil {
				Binary(Add, to, n.Sum[at:end], to)
			}
		}
	})
	clear(dGain)
	for task := range tasks {
		Binary(Add, dGain, dGain, sums[task*n.Width:(task+1)*n.Width])
	}
}
