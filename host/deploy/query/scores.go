package query

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/atomicfile"
)

// SaveScores writes a file: safetensors if its name ends so, else a line for each sequence.
func SaveScores(ctx context.Context, file string, sequences [][]int32, logProbs [][]float32) error {
	to, err := atomicfile.Target(file)
	if err != nil {
		return err
	}
	if filepath.Ext(file) != ".safetensors" {
		return atomicfile.Write(to, func(w io.Writer) error { return WriteScores(w, sequences, logProbs) })
	}
	var tensors []safetensors.Tensor
	for i := range sequences {
		ids, err := safetensors.New(fmt.Sprintf("ids.%d", i), []int{len(sequences[i])}, sequences[i])
		if err != nil {
			return err
		}
		values, err := safetensors.New(fmt.Sprintf("log_probs.%d", i), []int{len(logProbs[i])}, logProbs[i])
		if err != nil {
			return err
		}
		tensors = append(tensors, ids, values)
	}
	return safetensors.WriteFile(ctx, to, tensors, nil)
}

// MeanLogProb is the mean over all tokens that have one, and their number.
func MeanLogProb(list [][]float32) (mean float64, tokens int) {
	for _, sequence := range list {
		for _, v := range sequence {
			mean += float64(v)
		}
		tokens += len(sequence)
	}
	return mean / float64(tokens), tokens
}

// WriteScores writes a line for each sequence.
func WriteScores(to io.Writer, sequences [][]int32, logProbs [][]float32) error {
	w := bufio.NewWriter(to)
	var line []byte
	for i, ids := range sequences {
		line = append(line[:0], `{"ids": [`...)
		for k, id := range ids {
			if k > 0 {
				line = append(line, ", "...)
			}
			line = strconv.AppendInt(line, int64(id), 10)
		}
		line = append(line, `], "log_probs": [`...)
		for k, v := range logProbs[i] {
			if k > 0 {
				line = append(line, ", "...)
			}
			line = appendFloat32(line, v)
		}
		if _, err := w.Write(append(line, "]}\n"...)); err != nil {
			return err
		}
	}
	return w.Flush()
}

// appendFloat32 appends a number with the fewest digits from which it comes back, or the name of one that JSON does not have,
// as [metrics.Number] writes it.
func appendFloat32(to []byte, v float32) []byte {
	if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
		text, _ := metrics.Number(x).MarshalJSON() // a text, which has no error
		return append(to, text...)
	}
	return strconv.AppendFloat(to, float64(v), 'g', -1, 32)
}
