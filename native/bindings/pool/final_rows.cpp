// SPDX-License-Identifier: Apache-2.0
// final_obs and final_info of same-step autoreset in Gymnasium's layout. Only rows that ended cost
// time. Most batches of a light environment have such a row, and making these objects in Python
// would take several times as long as the step.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/python_calls.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using py::detail::array_proxy;
using py::detail::npy_api;
using Rows = std::vector<py::ssize_t>;

// Final observations of at most this many bytes are copied into arrays that are used again; for a
// larger one, making a view costs less than a copy.
constexpr py::ssize_t kMostCopiedBytes = 1024;

// Strings that steps use again and again; they live as long as the process.
class Names {
 public:
  static Names& All() {
    // never freed: at the process' end there is no interpreter to return strings to
    static Names& names = *new Names;
    return names;
  }

  // "_name": the key of Gymnasium's mask of the rows in which `name` is valid.
  py::handle MaskOf(const py::handle& name) {
    // made once per name, and borrowed from masks_ afterwards
    if (PyObject* found = PyDict_GetItemWithError(masks_.ptr(), name.ptr())) return found;
    const py::str mask("_" + py::str(name).cast<std::string>());
    masks_[name] = mask;
    return PyDict_GetItemWithError(masks_.ptr(), name.ptr());
  }

  const py::str final_obs{"final_obs"}, final_obs_mask{"_final_obs"};
  const py::str final_info{"final_info"}, final_info_mask{"_final_info"};

 private:
  py::dict masks_;
};

// array[row] as Python indexes it: a view, or a scalar of an array of one axis.
py::object RowOf(const py::array& array, py::ssize_t row) {
  if (array.ndim() == 1) return array[py::int_(row)];
  auto* const whole = array_proxy(array.ptr());
  py::array view = NewArray(whole->descr, whole->nd - 1, whole->dimensions + 1, whole->strides + 1,
                            whole->data + row * whole->strides[0], whole->flags);
  if (npy_api::get().PyArray_SetBaseObject_(view.ptr(), array.inc_ref().ptr()) != 0) {
    throw py::error_already_set();
  }
  return view;
}

PyObject** Objects(const py::object& rows) {
  return reinterpret_cast<PyObject**>(array_proxy(rows.ptr())->data);
}

// Writes None into each row of an array of objects (B,).
void Clear(const py::object& rows) {
  PyObject** const items = Objects(rows);
  const py::ssize_t num_rows = array_proxy(rows.ptr())->dimensions[0];
  for (py::ssize_t row = 0; row < num_rows; ++row) {
    // most rows are None already
    if (items[row] != Py_None) Py_XSETREF(items[row], py::none().release().ptr());
  }
}

// True if the elements of each row are contiguous in memory, in C order.
bool HasDenseRows(const py::array& array) {
  py::ssize_t stride = array.itemsize();
  for (py::ssize_t axis = array.ndim() - 1; axis > 0; --axis) {
    // an axis of one element may have any stride
    if (array.shape(axis) != 1 && array.strides(axis) != stride) return false;
    stride *= array.shape(axis);
  }
  return true;
}

// Copies the rows that ended; the others are zeros.
void WriteEnded(const py::array& values, const Rows& ended, py::array& result) {
  // NumPy copies objects, which have reference counts, and rows with gaps between their elements
  if (values.dtype().kind() == 'O' || !HasDenseRows(values)) {
    result[py::ellipsis()] = py::int_(0);
    for (const py::ssize_t row : ended) result[py::int_(row)] = values[py::int_(row)];
    return;
  }
  const auto* const from = array_proxy(values.ptr());
  char* const to = array_proxy(result.ptr())->data;
  const auto size = static_cast<std::size_t>(result.nbytes() / values.shape(0));
  std::memset(to, 0, static_cast<std::size_t>(result.nbytes()));
  for (const py::ssize_t row : ended) {
    std::memcpy(to + row * size, from->data + row * from->strides[0], size);
  }
}

// True if the array may be overwritten: it has this dtype and shape, and no references but the
// `holders` of this code.
bool IsFree(const py::object& kept, const py::handle& dtype, int ndim, const py::ssize_t* shape,
            py::ssize_t holders = 1) {
  // another holder may still read an earlier step in it
  if (!kept || Py_REFCNT(kept.ptr()) != holders) return false;
  const auto* const array = array_proxy(kept.ptr());
  constexpr int kFlags = py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_ |
                         py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  return array->descr == dtype.ptr() && array->nd == ndim && (array->flags & kFlags) == kFlags &&
         std::equal(shape, shape + ndim, array->dimensions);
}

void CheckRows(const py::handle& name, const py::array& array, py::ssize_t num_rows) {
  if (array.ndim() > 0 && array.shape(0) == num_rows) return;
  throw SpecError(py::str(name).cast<std::string>() + " has not one row for each of the " +
                  std::to_string(num_rows) + " environments");
}

// Replaces the infos of the ended episodes by those of the begun ones (same-step autoreset).
void PutBegun(const py::dict& info, const py::dict& begun, const Rows& ended) {
  for (const auto& [name, values] : begun) {
    const auto from = py::cast<py::array>(values);
    // info's own memory: from here on the caller's batch shows the begun episodes
    auto to = py::cast<py::array>(info[name]);
    if (!HasDenseRows(from) || !HasDenseRows(to) || from.nbytes() != to.nbytes() ||
        !from.dtype().equal(to.dtype())) {
      throw SpecError(py::str(name).cast<std::string>() + " is not the same column as begun");
    }
    const auto size = static_cast<std::size_t>(to.nbytes() / to.shape(0));
    auto* const rows = static_cast<char*>(to.mutable_data());
    const auto* const begun_rows = static_cast<const char*>(from.data());
    for (const py::ssize_t row : ended) {
      std::memcpy(rows + row * to.strides(0), begun_rows + row * from.strides(0), size);
    }
  }
}

const bool* BoolRows(const char* name, const py::array& array, py::ssize_t num_rows) {
  CheckRows(py::str(name), array, num_rows);
  // FindEnded reads eight rows as one word
  if (array.dtype().kind() != 'b' || array.ndim() != 1 || array.strides(0) != 1) {
    throw SpecError(std::string(name) + " is not a contiguous array of one bool per environment");
  }
  return static_cast<const bool*>(array.data());
}

// Makes the arrays, or overwrites those of an earlier step that nobody holds any more: making and
// freeing arrays costs more than filling them.
class FinalRows {
 public:
  bool Add(const py::dict& info, const py::array& final_obs, const py::array& terminated,
           const py::array& truncated, const py::dict& begun) {
    Forget();
    if (terminated.ndim() == 0) throw SpecError("terminated is a scalar, expected one row each");
    const py::ssize_t num_rows = terminated.shape(0);
    const bool* const terminated_rows = BoolRows("terminated", terminated, num_rows);
    const bool* const truncated_rows = BoolRows("truncated", truncated, num_rows);
    // where nothing ended, nothing below is made or touched
    FindEnded(terminated_rows, truncated_rows, num_rows);
    if (ended_.empty()) return false;

    Names& names = Names::All();
    CheckRows(names.final_obs, final_obs, num_rows);
    // one set after the other, because the caller may still hold those of the last steps
    Kept& kept = kept_[next_++ % kept_.size()];
    const py::dtype of_mask = terminated.dtype();
    if (!HoldsAll(kept, info, of_mask, num_rows)) Renew(kept, info, of_mask, num_rows);
    // one mask for all columns, as it marks the rows that ended
    auto* const marks = reinterpret_cast<bool*>(array_proxy(kept.mask.ptr())->data);
    std::memset(marks, 0, static_cast<std::size_t>(num_rows));
    for (const py::ssize_t row : ended_) marks[row] = true;
    std::size_t index = 0;
    for (const auto& [name, values] : info) {
      WriteEnded(py::reinterpret_borrow<py::array>(values), ended_, kept.columns[index++]);
    }
    PutBegun(info, begun, ended_);
    static const py::handle objects = npy_api::get().PyArray_DescrFromType_(npy_api::NPY_OBJECT_);
    // by now Forget has cleared the rows that nobody held
    const PyObject* const before = kept.rows.ptr();
    const py::array rows = Take(kept.rows, objects, 1, &num_rows);
    if (rows.ptr() != before || kept.shows_rows) Clear(rows);
    // set before PutRows, which may throw: then Forget clears the rows
    kept.shows_rows = true;
    PutRows(final_obs, kept, Objects(rows));
    Put(info, names.final_obs, rows);
    Put(info, names.final_obs_mask, kept.mask);
    Put(info, names.final_info, kept.final_info);
    Put(info, names.final_info_mask, kept.mask);
    return true;
  }

 private:
  // Results of one step.
  struct Kept {
    py::object final_info;  // the columns by name, and the mask under the name of each
    py::object mask;
    std::vector<py::array> columns;
    py::object rows;  // final_obs
    std::vector<py::object> copies;  // copies of final observations, of any row
    bool shows_rows = false;
  };

  // The kept array if nobody else holds it, else a new one in its place.
  static py::array Take(py::object& kept, const py::handle& dtype, int ndim,
                        const py::ssize_t* shape) {
    if (!IsFree(kept, dtype, ndim, shape)) kept = NewArray(dtype, ndim, shape);
    return py::reinterpret_borrow<py::array>(kept);
  }

  // Tells if final_info and its arrays are as they were made, match `info`, and have no other
  // holder.
  static bool HoldsAll(const Kept& kept, const py::dict& info, const py::dtype& of_mask,
                       py::ssize_t num_rows) {
    const auto size = static_cast<py::ssize_t>(info.size());
    if (!kept.final_info || Py_REFCNT(kept.final_info.ptr()) != 1) return false;
    // its last holder may have changed its entries
    if (static_cast<py::ssize_t>(kept.columns.size()) != size) return false;
    // two entries for each column: itself and its mask
    if (PyDict_GET_SIZE(kept.final_info.ptr()) != 2 * size) return false;
    // the mask's holders: `kept`, and final_info once for each column
    if (!IsFree(kept.mask, of_mask, 1, &num_rows, 1 + size)) return false;
    auto column = kept.columns.begin();
    const auto is_there = [&](const py::handle& name, const py::object& value) {
      return PyDict_GetItemWithError(kept.final_info.ptr(), name.ptr()) == value.ptr();
    };
    for (const auto& [name, values] : info) {
      const auto* const like = array_proxy(py::cast<py::array>(values).ptr());
      const py::array& mine = *column++;
      // a column's holders: columns, and final_info
      if (!IsFree(mine, like->descr, like->nd, like->dimensions, 2)) return false;
      if (!is_there(name, mine) || !is_there(Names::All().MaskOf(name), kept.mask)) return false;
    }
    return true;
  }

  // Makes final_info and its arrays anew, like `info`.
  static void Renew(Kept& kept, const py::dict& info, const py::dtype& of_mask,
                    py::ssize_t num_rows) {
    py::dict final_info;
    kept.mask = NewArray(of_mask, 1, &num_rows);
    kept.columns.clear();
    for (const auto& [name, values] : info) {
      const auto column = py::cast<py::array>(values);
      CheckRows(name, column, num_rows);
      const auto* const like = array_proxy(column.ptr());
      kept.columns.push_back(NewArray(like->descr, like->nd, like->dimensions));
      Put(final_info, name, kept.columns.back());
      Put(final_info, Names::All().MaskOf(name), kept.mask);
    }
    kept.final_info = final_info;
  }

  // The final observations of the rows that ended: copies of small ones, views of large ones.
  void PutRows(const py::array& final_obs, Kept& kept, PyObject** rows) {
    const auto* const from = array_proxy(final_obs.ptr());
    const py::ssize_t bytes = final_obs.nbytes() / final_obs.shape(0);
    const bool is_copied = final_obs.ndim() > 1 && bytes <= kMostCopiedBytes &&
                           final_obs.dtype().kind() != 'O' && HasDenseRows(final_obs);
    if (!is_copied) {
      for (const py::ssize_t row : ended_) {
        Py_XSETREF(rows[row], RowOf(final_obs, row).release().ptr());
      }
      return;
    }
    // there are as many copies as the most rows that ended at once
    if (kept.copies.size() < ended_.size()) kept.copies.resize(ended_.size());
    auto copy = kept.copies.begin();
    for (const py::ssize_t row : ended_) {
      const py::array values = Take(*copy++, from->descr, from->nd - 1, from->dimensions + 1);
      std::memcpy(array_proxy(values.ptr())->data, from->data + row * from->strides[0],
                  static_cast<std::size_t>(bytes));
      Py_XSETREF(rows[row], values.inc_ref().ptr());
    }
  }

  // Most rows did not end: eight are checked in one word.
  void FindEnded(const bool* terminated, const bool* truncated, py::ssize_t num_rows) {
    ended_.clear();
    py::ssize_t row = 0;
    for (; row + 8 <= num_rows; row += 8) {
      std::uint64_t words[2];
      std::memcpy(words, terminated + row, 8);
      std::memcpy(words + 1, truncated + row, 8);
      if ((words[0] | words[1]) == 0) continue;
      for (py::ssize_t i = row; i < row + 8; ++i) {
        if (terminated[i] | truncated[i]) ended_.push_back(i);
      }
    }
    for (; row < num_rows; ++row) {
      if (terminated[row] | truncated[row]) ended_.push_back(row);
    }
  }

  // Clears the rows of a step that its caller has dropped, which also frees the batch behind views.
  void Forget() {
    for (Kept& kept : kept_) {
      // no rows are shown, or the caller still holds them
      if (!kept.shows_rows || Py_REFCNT(kept.rows.ptr()) != 1) continue;
      Clear(kept.rows);
      kept.shows_rows = false;
    }
  }

  // several, because a caller holds one step's results while the next are made
  std::array<Kept, 3> kept_;
  std::size_t next_ = 0;
  Rows ended_;
};

}  // namespace

void BindFinalRows(py::module_& module) {
  py::class_<FinalRows>(module, "FinalRows")
      .def(py::init<>())
      .def("add", &FinalRows::Add, py::arg("info"), py::arg("final_obs"), py::arg("terminated"),
           py::arg("truncated"), py::arg("begun") = py::dict());
}

}  // namespace rollouts
