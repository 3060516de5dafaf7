// Command image-archive prints images of static programs as a docker archive.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/imagearchive"
)

const usage = `usage: image-archive [--file PATH=FILE]... PROGRAM:ENTRYPOINT=NAME[,NAME]...

Each image holds PROGRAM at the path ENTRYPOINT, and every FILE at its PATH.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, complaints io.Writer) int {
	images, err := parse(args, complaints)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(complaints, "image-archive: %v\n", err)
		return 2
	}
	buffered := bufio.NewWriterSize(out, 1<<20)
	if err = imagearchive.Write(buffered, images); err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		fmt.Fprintf(complaints, "image-archive: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, complaints io.Writer) ([]imagearchive.Image, error) {
	files := map[string]string{}
	flags := flag.NewFlagSet("image-archive", flag.ContinueOnError)
	flags.SetOutput(complaints)
	flags.Usage = func() { fmt.Fprint(complaints, usage) }
	flags.Func("file", "`PATH=FILE` for every image", func(value string) error {
		to, from, found := strings.Cut(value, "=")
		if !found {
			return errors.New("it is not PATH=FILE")
		}
		files[to] = from
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	images := make([]imagearchive.Image, 0, flags.NArg())
	for _, arg := range flags.Args() {
		source, names, named := strings.Cut(arg, "=")
		program, entrypoint, placed := strings.Cut(source, ":")
		if !named || !placed || names == "" {
			return nil, fmt.Errorf("%q is not PROGRAM:ENTRYPOINT=NAME", arg)
		}
		images = append(images, imagearchive.Image{
			Names: strings.Split(names, ","), Program: program, Entrypoint: entrypoint,
			Files: files,
		})
	}
	if len(images) == 0 {
		return nil, errors.New("name at least one PROGRAM:ENTRYPOINT=NAME")
	}
	return images, nil
}
