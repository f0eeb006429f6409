package matmul

// A Peak measures the peak rate of an instruction. Run executes a group of independent ones n
// times.
type Peak struct {
	Instruction string
	Operations  int // multiplications and additions in one repetition
	Run         func(n int)
}

// Peaks lists the multiplication instructions used by the tiers of this processor. It is empty in
// builds without kernels.
func Peaks() []Peak { return processorPeaks() }
