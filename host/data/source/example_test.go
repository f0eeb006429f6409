package source_test

import (
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/data/source"
)

// ExampleRow_Extract reads rows. One without text is an error, but does not end the reading.
func ExampleRow_Extract() {
	in := strings.NewReader("{\"text\": \"one\"}\n{\"text\": 2}\n{\"text\": \"three\"}\n")
	for row, err := range source.ReadObjects(in) {
		row.Extract("text")
		switch {
		case err != nil:
			fmt.Println("cannot be read:", err)
		case row.Err != nil:
			fmt.Println(row.Err)
		default:
			fmt.Printf("%d: %s\n", row.Number, row.Text)
		}
	}
	// Output:
	// 1: one
	// line 2: field "text" is not a string
	// 3: three
}
