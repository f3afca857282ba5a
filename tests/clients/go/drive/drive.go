// Package drive is shared by the Go programs: their arguments, the order of their cases, and the restart of the server.
package drive

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"time"
)

// Address, Password, Protocol and control are the arguments: PORT PASSWORD PROTOCOL CONTROL.
var (
	Address  = "127.0.0.1:" + os.Args[1]
	Password = os.Args[2]
	Protocol = os.Args[3]
	control  = os.Args[4]
)

// Case is a part of a program, with the name that libraries.rs expects.
type Case struct {
	Name string
	Run  func()
}

// Run runs all cases in order; the first failure ends the program.
func Run(library string, cases []Case) {
	time.AfterFunc(230*time.Second, func() { panic("too slow") })
	for _, c := range cases {
		c.Run()
		fmt.Printf("%s RESP%s: %s\n", library, Protocol, c.Name)
	}
}

// Ok fails on an error.
func Ok(err error) {
	if err != nil {
		panic(err)
	}
}

// Get returns the value of a call that must not fail.
func Get[T any](value T, err error) T {
	Ok(err)
	return value
}

// Equal fails if the two differ.
func Equal[T any](seen, expected T) {
	if !reflect.DeepEqual(seen, expected) {
		panic(fmt.Sprintf("%v, expected %v", seen, expected))
	}
}

// Fails fails unless the error contains the text.
func Fails(err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		panic(fmt.Sprintf("%v, expected %s", err, text))
	}
}

// Sorted returns a sorted copy.
func Sorted(items []string) []string {
	copied := append([]string{}, items...)
	sort.Strings(copied)
	return copied
}

// Until waits until the condition holds, for at most 20 s.
func Until(what string, holds func() bool) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	panic("never: " + what)
}

// Waits returns what a call that blocks in another goroutine returns once serve has run, 100 ms later.
func Waits[T, D any](timeout D, call func(D) (T, error), serve func() error) T {
	answer := make(chan T, 1)
	go func() { answer <- Get(call(timeout)) }()
	time.Sleep(100 * time.Millisecond)
	Equal(len(answer), 0)
	Ok(serve())
	return <-answer
}

// Restart has the server killed and restarted.
func Restart() {
	Ok(os.WriteFile(filepath.Join(control, "restart"), nil, 0o600))
	Until("a new server", func() bool {
		_, err := os.Stat(filepath.Join(control, "restarted"))
		return err == nil
	})
}
