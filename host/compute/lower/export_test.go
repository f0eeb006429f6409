package lower

import "github.com/cage-qat/cage/sdk/program"

// LowerPlain is Lower as for a backend other than the Go backend.
var LowerPlain = lowerFor

// Joined are the passes of a quantizer of what a source computes, and how their floats lie in memory.
func Joined(q Quantizer, s Source) (forward, backward *program.Program, memory InMemory, err error) {
	p := q.(programQuantizer).short()
	if forward, err = p.joined(s, p.parts.Forward); err != nil {
		return nil, nil, nil, err
	}
	backward, err = p.joinedBack(s)
	return forward, backward, p.joinedMemory(s), err
}
