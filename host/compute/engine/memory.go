package engine

import "fmt"

// Memory is the memory that an executable needs on each device, in bytes, as reported by the
// compiler.
type Memory struct {
	Code      int64 `json:"code"`
	Inputs    int64 `json:"inputs"`
	Outputs   int64 `json:"outputs"`
	Aliased   int64 `json:"aliased"`   // outputs that reuse the memory of donated inputs
	Temporary int64 `json:"temporary"` // intermediate values
}

// Total returns the memory needed while the executable runs, including its inputs and outputs.
func (m Memory) Total() int64 { return m.Code + m.Inputs + m.Outputs - m.Aliased + m.Temporary }

// String returns the parts, in bytes.
func (m Memory) String() string {
	return fmt.Sprintf("inputs %d, outputs %d in addition, temporary %d, code %d",
		m.Inputs, m.Outputs-m.Aliased, m.Temporary, m.Code)
}

// Memory returns the memory that the executable needs. It returns false if the compiler does not
// report it.
func (e *Executable) Memory() (Memory, bool) {
	if e.host != nil {
		m := Memory{Temporary: e.host.Temporary}
		for _, s := range e.inputs {
			m.Inputs += s.Shape.ByteSize()
		}
		for i, s := range e.outputs {
			m.Outputs += s.ByteSize()
			if e.host.Reuses[i] >= 0 {
				m.Aliased += s.ByteSize()
			}
		}
		return m, true
	}
	if e.program == nil {
		return Memory{}, false
	}
	m := e.program.memory()
	return m, m.Total() > 0
}

// MemoryLimit returns the number of bytes of each GPU's memory that XLA may use, according to
// [Options.MemoryFraction]. It returns false if the limit is unknown, as on the CPU or with XLA's
// allocator "platform".
func (d *Device) MemoryLimit() (int64, bool) {
	if d.SharesMemory() || d.checkOpen() != nil {
		return 0, false
	}
	return d.client.memoryLimit()
}
