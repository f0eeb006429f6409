package lists_test

import (
	"fmt"
	"strconv"

	"github.com/cage-qat/cage/internal/lists"
)

func ExampleMap() {
	fmt.Println(lists.Map([]string{"a", "b"}, strconv.Quote),
		lists.Map([]int(nil), strconv.Itoa) == nil)
	// Output: ["a" "b"] false
}

func ExampleMake() {
	fmt.Println(lists.Make(3, func(i int) int { return i * i }), lists.Range(3), len(lists.Range(0)))
	// Output: [0 1 4] [0 1 2] 0
}
