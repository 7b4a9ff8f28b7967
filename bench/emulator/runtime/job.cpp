#include "job.hpp"

#include <sstream>
#include <stdexcept>

namespace emu {

namespace {

std::vector<char> read_bytes(std::istream &in, size_t count) {
  std::vector<char> bytes(count);
  in.read(bytes.data(), std::streamsize(count));
  return bytes;
}

Buffer read_buffer(std::istream &words, std::istream &in) {
  Buffer buffer;
  std::string role;
  size_t bytes = 0, pieces = 0;
  words >> buffer.name >> role >> bytes >> buffer.row >> buffer.pitch >> buffer.granule_shift >> pieces;
  buffer.role = role == "in" ? Role::in : role == "out" ? Role::out : role == "inout" ? Role::inout : Role::scratch;
  buffer.contents = read_bytes(in, bytes);
  buffer.piece = bytes / pieces;
  buffer.places.resize(pieces);
  in.read(reinterpret_cast<char *>(buffer.places.data()), std::streamsize(pieces * sizeof(size_t)));
  return buffer;
}

Constant read_constant(std::istream &words, std::istream &in) {
  Constant constant;
  size_t bytes = 0;
  words >> constant.symbol >> bytes;
  constant.contents = read_bytes(in, bytes);
  return constant;
}

Argument read_map(int buffer, bool is_im2col, std::istream &words) {
  TensorMap map{};
  for (auto &size : map.size) words >> size;
  for (auto &pitch : map.pitch) words >> pitch;
  words >> map.box[0] >> map.box[1] >> map.itemsize >> map.swizzle >> map.round_to_tf32;
  if (is_im2col) {
    words >> map.lower[0] >> map.lower[1] >> map.upper[0] >> map.upper[1];
    words >> map.stride[0] >> map.stride[1];
  }
  map.map = TensorMap::is_map;
  return {buffer, {}, map};
}

Argument read_argument(std::istream &words, std::istream &in) {
  std::string kind;
  size_t number = 0;
  words >> kind >> number;
  if (kind == "map" || kind == "im2col") return read_map(int(number), kind == "im2col", words);
  if (kind == "pointer") return {int(number), {}};
  return {-1, read_bytes(in, number)};
}

// The name expression may contain spaces, and ends the line.
PlannedLaunch read_launch(std::istream &words) {
  PlannedLaunch launch{};
  words >> launch.grid.x >> launch.grid.y >> launch.grid.z >> launch.block.x >> launch.block.y >> launch.block.z;
  words >> launch.shared_bytes >> launch.cooperative >> launch.cluster >> std::ws;
  std::getline(words, launch.entry);
  return launch;
}

}  // namespace

Job read_job(std::istream &in) {
  Job job;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "limit") words >> job.limit_s;
    else if (verb == "buffer") job.buffers.push_back(read_buffer(words, in));
    else if (verb == "constant") job.constants.push_back(read_constant(words, in));
    else if (verb == "launch") job.launches.push_back(read_launch(words));
    else if (verb == "argument") job.launches.back().arguments.push_back(read_argument(words, in));
    else if (verb == "sample") {
      uint32_t cluster = 0, weight = 0;
      words >> cluster >> weight;
      job.launches.back().sample[cluster] = weight;
#ifdef EMU_COUNT
    } else if (verb == "width") {
      uintptr_t pc = 0;
      Widths widths{};
      words >> std::hex >> pc >> std::dec >> widths.line >> widths.bytes;
      job.widths[pc] = widths;
#endif
    } else if (verb == "run") {
      unsigned order = 0;
      Run run{};
      words >> order >> run.seed;
      run.order = Order(order);
      job.runs.push_back(run);
    } else {
      throw std::runtime_error("job: " + line +
                               ": expected limit, buffer, constant, launch, argument, sample or run");
    }
  }
  return job;
}

}  // namespace emu
