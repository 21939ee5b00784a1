// Reads questions about network configurations from stdin, and reports how libcni and go-cni load these configurations. Each question and
// each answer is one line of JSON.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"

	gocni "github.com/containerd/go-cni"
	"github.com/containernetworking/cni/libcni"
)

// Question is the content of a file, which As decodes as a list, as a single plugin or as a drop-in plugin of a list, or else a directory
// of network configurations.
type Question struct {
	As      string `json:"as"`
	Content []byte `json:"content"`
	Dir     string `json:"dir"`
}

// Answer is an error, or the network's name and the types of its plugins. For a directory, Error and Name report the network that
// containerd loads, and File and Types the first file that CRI-O does not skip.
type Answer struct {
	Error string   `json:"error"`
	Name  string   `json:"name"`
	Types []string `json:"types"`
	File  string   `json:"file"`
}

// load does what both runtimes do with a file that is not a list.
func load(conf *libcni.PluginConfig, err error) (*libcni.NetworkConfigList, error) {
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(conf)
}

func decode(question Question) (*libcni.NetworkConfigList, error) {
	switch question.As {
	case "list":
		return libcni.NetworkConfFromBytes(question.Content)
	case "single":
		return load(libcni.NetworkPluginConfFromBytes(question.Content))
	default:
		conf, err := libcni.NetworkPluginConfFromBytes(question.Content)
		if err != nil {
			return nil, err
		}
		return &libcni.NetworkConfigList{Plugins: []*libcni.PluginConfig{conf}}, nil
	}
}

// containerd returns the name of the network that go-cni, containerd's library, loads.
func containerd(dir string) (string, error) {
	cni, err := gocni.New(gocni.WithPluginConfDir(dir), gocni.WithMinNetworkCount(1), gocni.WithPluginMaxConfNum(1))
	if err != nil {
		return "", err
	}
	if err := cni.Load(gocni.WithDefaultConf); err != nil {
		return "", err
	}
	return cni.GetConfig().Networks[0].Config.Name, nil
}

// crio returns the first file that ocicni, CRI-O's library, does not skip (loadNetworks). Unlike ocicni, it does not check that the
// plugins' programs exist.
func crio(dir string) (string, *libcni.NetworkConfigList) {
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return "", nil
	}
	sort.Strings(files)
	for _, file := range files {
		var list *libcni.NetworkConfigList
		if strings.HasSuffix(file, ".conflist") {
			list, err = libcni.NetworkConfFromFile(file)
		} else {
			list, err = load(libcni.ConfFromFile(file))
		}
		if err == nil && len(list.Plugins) > 0 {
			return filepath.Base(file), list
		}
	}
	return "", nil
}

func answer(question Question) (answer Answer) {
	var list *libcni.NetworkConfigList
	var err error
	if question.Dir != "" {
		answer.File, list = crio(question.Dir)
		answer.Name, err = containerd(question.Dir)
	} else if list, err = decode(question); err == nil {
		answer.Name = list.Name
	}
	if err != nil {
		answer.Error = err.Error()
	}
	if list != nil {
		for _, plugin := range list.Plugins {
			answer.Types = append(answer.Types, plugin.Network.Type)
		}
	}
	return answer
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	decoder := json.NewDecoder(bufio.NewReader(os.Stdin))
	encoder := json.NewEncoder(out)
	for decoder.More() {
		var question Question
		if err := decoder.Decode(&question); err != nil {
			panic(err)
		}
		if err := encoder.Encode(answer(question)); err != nil {
			panic(err)
		}
		// The test waits for each answer before it sends the next question.
		if err := out.Flush(); err != nil {
			panic(err)
		}
	}
}
