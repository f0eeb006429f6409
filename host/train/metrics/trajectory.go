package metrics

import (
	"fmt"
	"math"
	"strconv"

	"github.com/cage-qat/cage/internal/plainjson"
)

// Point is one line of trajectory.jsonl: the parameters of a problem after a step.
type Point struct {
	Step int    `json:"step"` // optimizer steps done; 0: the start
	X    Vector `json:"x"`    // row by row
}

func (p Point) at() int { return p.Step }

// Vector is a list of float32 numbers that survives JSON, as [Number] does.
type Vector []float32

// MarshalJSON writes the shortest texts that read back as the same float32 numbers.
func (v Vector) MarshalJSON() ([]byte, error) {
	text := make([]byte, 0, 12*len(v)+2)
	text = append(text, '[')
	for i, x := range v {
		if i > 0 {
			text = append(text, ',')
		}
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			one, err := Number(f).MarshalJSON()
			if err != nil {
				return nil, err
			}
			text = append(text, one...)
			continue
		}
		text = strconv.AppendFloat(text, float64(x), 'g', -1, 32)
	}
	return append(text, ']'), nil
}

// UnmarshalJSON reads a list of numbers as MarshalJSON writes them.
func (v *Vector) UnmarshalJSON(text []byte) error {
	var list []Number
	if err := plainjson.UnmarshalPart(text, &list); err != nil {
		return fmt.Errorf("x: %w", err)
	}
	*v = make(Vector, len(list))
	for i, x := range list {
		(*v)[i] = float32(x)
	}
	return nil
}
