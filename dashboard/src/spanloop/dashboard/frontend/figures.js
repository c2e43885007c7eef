export default function ({ data, parentElement }) {
  parentElement.querySelector(".figures").replaceChildren(...data.figures.map((figure) =>
    make("div", { class: "figure", title: figure.help || undefined },
      make("dt", { text: figure.label }),
      make("dd", {}, figure.href ? link(figure.href, {}, figure.value) : figure.value))));
}
