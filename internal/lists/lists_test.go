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
